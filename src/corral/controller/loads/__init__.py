"""Runs load jobs: place a replica, stage its weights, start it."""
