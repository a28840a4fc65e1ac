"""`/api/rollouts`: changes of versions in waves."""
