"""Runs backends: starts them, keeps them, takes them over after a restart of the worker, and ends them for good."""
