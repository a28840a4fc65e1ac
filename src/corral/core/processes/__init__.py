"""Processes on a node: their states, ports, restarts, leases and log lines."""
