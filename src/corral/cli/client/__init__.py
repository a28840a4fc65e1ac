"""What commands share to call a frontend: the API client, settings flags, names and conversations."""
