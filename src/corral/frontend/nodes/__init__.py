"""The node API under `/api/node`: what workers call."""
