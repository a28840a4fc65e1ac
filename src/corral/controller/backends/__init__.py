"""Reconciles backends: operations, intents, policies, upgrades."""
