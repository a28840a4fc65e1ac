"""What commands share to show progress and state."""
