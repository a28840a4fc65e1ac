"""Continues the answer of a replica that failed at another replica of the same model (ADR 0903)."""
