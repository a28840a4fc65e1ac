"""Galleries, routes and views."""
