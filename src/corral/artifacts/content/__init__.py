"""The content-addressed store: blobs, layers, versions, manifests."""
