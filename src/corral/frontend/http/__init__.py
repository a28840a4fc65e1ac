"""HTTP around the API: middleware, errors, compression, static UI, event feed."""
