"""Python packages: index, resolver, wheels, builds from source."""
