"""OCI images: registries, platforms, signatures."""
