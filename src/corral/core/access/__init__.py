"""API keys: their limits, and what counts towards them."""
