"""Tests of the web UI. A package, so that what they share ends with them and not with the run."""
