"""Status, overview, metrics and explanations, routes and views."""
