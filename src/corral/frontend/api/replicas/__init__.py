"""Replicas, routes and views."""
