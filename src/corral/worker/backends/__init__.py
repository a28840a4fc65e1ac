"""Installs, upgrades, rolls back and deletes backends on this node."""
