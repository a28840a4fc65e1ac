"""LocalAI's own shapes of the admin API."""
