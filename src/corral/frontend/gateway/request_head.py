"""What a client's head means for us, worked out once: mostly the next request of the connection has the same."""

from collections.abc import Mapping

from corral.frontend.auth.rules import CLIENT_HEADER
from corral.frontend.gateway.endpoints import FORWARDED, PROXIED, SESSION_HEADERS, SESSION_MOST_BYTES

_CLIENT = CLIENT_HEADER.encode()


class RequestHead:
    __slots__ = (
        "authorization", "content_type", "headers", "http11", "is_call", "is_form", "is_from_corral", "keep_alive",
        "method", "opening", "path", "sent", "session",
    )  # fmt: skip

    def __init__(
        self, method: bytes, path: bytes, headers: Mapping[bytes, bytes], *, http11: bool, keep_alive: bool
    ) -> None:
        """Names of headers in lower case."""
        self.method = method
        self.path = path
        self.headers = headers
        self.http11 = http11
        self.keep_alive = keep_alive
        self.authorization = headers.get(b"authorization", b"")
        self.is_call = method == b"POST" and path in PROXIED
        """For a replica to answer."""
        content_type = headers.get(b"content-type", b"")
        self.is_form = content_type.startswith(b"multipart/")
        self.content_type = content_type if self.is_form else b"application/json"
        self.is_from_corral = _CLIENT in headers
        """From one of Corral's own clients."""
        self.session = next((headers[name][:SESSION_MOST_BYTES] for name in SESSION_HEADERS if name in headers), b"")
        """What this client's requests have in common, if it says so."""
        forwarded = b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in sorted(FORWARDED & headers.keys()))
        self.opening = b"POST %b HTTP/1.1\r\n" % path
        self.sent = b"%bContent-Type: %b\r\nContent-Length: " % (forwarded, self.content_type)
        """The part of the head that a replica gets from the client's: between the replica's own and the length."""
