"""Backends: galleries, operations, intents, policies, drift and upgrades, decided without touching anything."""
