"""Decisions and values: pure functions and frozen dataclasses. Standard library only."""
