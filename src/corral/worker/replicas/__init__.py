"""Replicas on this node: weights, launch and the process of each model and slot."""
