"""Nodes and their logs."""
