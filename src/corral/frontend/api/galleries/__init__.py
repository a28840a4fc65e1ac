"""What the galleries offer."""
