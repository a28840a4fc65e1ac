"""Reconciles nodes: health, reports, audit retention."""
