"""Policies, routes and views."""
