"""Replicas and their scheduling."""
