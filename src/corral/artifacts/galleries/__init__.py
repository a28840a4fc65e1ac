"""Galleries: their entries, builds, sources, and the catalogue over all of them."""
