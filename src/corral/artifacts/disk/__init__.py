"""The disk of the artifact store: space, locks, staging directories, flushing."""
