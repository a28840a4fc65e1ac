"""Replicas: placement, scaling, load jobs, routing and load balancing."""
