"""API keys, principals and usage, routes and views."""
