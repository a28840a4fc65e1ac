"""Archives to files: tar, zip and trees, within limits."""
