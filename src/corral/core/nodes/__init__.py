"""Nodes: membership, health, hardware, labels, and what a node reports."""
