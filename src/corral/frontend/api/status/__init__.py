"""Status, metrics, traffic history and explanations."""
