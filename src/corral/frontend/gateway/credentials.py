"""Where clients put their key: each protocol has its own header."""

from collections.abc import Mapping


def authorization_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The `Authorization` header, or the same made of Anthropic's `x-api-key`. `headers`: by name in lower case."""
    given = headers.get(b"authorization", b"")
    if not given and b"x-api-key" in headers:
        return b"Bearer " + headers[b"x-api-key"]
    return given
