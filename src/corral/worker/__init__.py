"""The worker: our process on each machine. It runs backends on command and tells the truth about them."""
