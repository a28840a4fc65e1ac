"""The node API under `/api/node`, which workers call."""
