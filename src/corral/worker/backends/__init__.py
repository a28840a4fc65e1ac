"""Backends on this node: install, upgrade, roll back, delete."""
