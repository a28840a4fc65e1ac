"""Nodes, routes and views."""
