"""Installing backends and weights: resolve, fetch, build layers, repair, collect garbage."""
