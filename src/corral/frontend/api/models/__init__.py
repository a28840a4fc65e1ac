"""Model configurations and loads."""
