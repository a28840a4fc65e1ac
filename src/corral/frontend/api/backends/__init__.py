"""Backends on nodes, routes and views."""
