"""Requests that nobody can read."""

UNREADABLE = (
    b"",
    b"null",
    b"[]",
    b"{",
    b'"x"',
    b"\xff\xfe",
    b'{"backend": 1, "lines": "x", "model_name": 2, "key": 3, "key_prefix": [], "local_path": {}}',
)
