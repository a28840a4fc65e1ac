"""HTTP connections from the gateway to replicas."""
