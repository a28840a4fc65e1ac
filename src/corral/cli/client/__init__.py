"""What commands share to call a frontend: the API client, settings, targets."""
