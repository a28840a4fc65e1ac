"""What could be installed: the galleries, read on behalf of everyone, and what of them fits which machine."""
