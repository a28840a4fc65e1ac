"""Tables of API keys and audit events."""
