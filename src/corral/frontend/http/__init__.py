"""HTTP in front of every API: middleware, errors, compression, static UI, event feed."""
