"""Backends of the fleet and of one node."""
