"""Tables of models, replicas, load jobs, scheduling and usage."""
