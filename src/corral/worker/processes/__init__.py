"""Runs backend processes: starts, supervises, adopts after a restart of the worker, and stops them."""
