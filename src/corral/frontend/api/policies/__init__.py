"""Policies and intents."""
