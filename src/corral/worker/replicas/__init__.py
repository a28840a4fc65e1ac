"""Replicas on this node: weights, launch, the process of a model and slot."""
