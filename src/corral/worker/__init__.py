"""The worker: the process on each machine that runs backends on command and reports their state."""
