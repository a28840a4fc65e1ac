"""`/api/routes`: names for clients that lead to several models."""
