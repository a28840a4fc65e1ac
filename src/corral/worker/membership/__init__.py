"""Membership of a worker: identity, registration, heartbeats, reports, process leases."""
