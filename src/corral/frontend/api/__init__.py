"""The admin API under `/api`: one package per resource, routes and views side by side."""
