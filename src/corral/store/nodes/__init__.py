"""Tables of nodes, their registration, health, credentials, and of frontends."""
