"""Models: configurations, their schema, variants and revisions."""
