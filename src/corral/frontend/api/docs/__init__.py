"""Descriptions of the APIs, for people (`/docs`) and for programs (OpenAPI)."""
