"""API keys, sessions, audit log and usage."""
