"""Models of the frontend: gallery, downloads, import, checks."""
