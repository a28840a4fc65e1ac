"""HTTP to registries and hubs: one client, one connection type, and which hosts may be reached."""
