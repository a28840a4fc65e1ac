"""Reconciles replicas: scaling, stopping, orphans, version rollouts."""
