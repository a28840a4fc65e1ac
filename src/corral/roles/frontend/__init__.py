"""Wires a frontend."""
