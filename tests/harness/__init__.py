"""Real servers and programs for tests, each started on a free port of loopback and ended by its own process id."""
