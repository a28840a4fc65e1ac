"""Models, routes and views."""
