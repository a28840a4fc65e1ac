"""The node API: what workers call, under `/api/node`."""
