"""What a request's head means for the gateway, computed once: most requests of a connection have the same head."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from corral.core.replicas.attached import HOPS_HEADER
from corral.frontend.auth.rules import CLIENT_HEADER
from corral.frontend.gateway.credentials import authorization_of

if TYPE_CHECKING:
    from corral.frontend.gateway.client_protocol import ClientProtocol

FORWARDED = frozenset(
    {b"accept", b"traceparent", b"tracestate", b"x-request-id", b"openai-beta", b"anthropic-beta", b"anthropic-version"}
)
"""The client headers that a replica receives, besides the content type."""
SESSION_HEADERS = (b"x-corral-session", b"x-session-id")
SESSION_MAX_BYTES = 256
HOPS_MAX_BYTES = 4096
_HOPS = HOPS_HEADER.encode()
_HOP = re.compile(rb"[0-9A-Za-z_.-]{1,100}")
_CLIENT = CLIENT_HEADER.encode()
_SESSION = frozenset(SESSION_HEADERS)


class RequestHead:
    __slots__ = (
        "authorization", "content_type", "headers", "hops", "http11", "is_call", "is_form", "is_from_corral",
        "is_relayed", "keep_alive", "method", "opening", "path", "protocol", "read_call", "sent",
        "session", "translation",
    )  # fmt: skip

    def __init__(
        self,
        protocol: "ClientProtocol",
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        *,
        http11: bool,
        keep_alive: bool,
    ) -> None:
        """`headers`: by name in lower case."""
        self.protocol = protocol
        self.method = method
        self.path = path
        self.headers = headers
        self.http11 = http11
        self.keep_alive = keep_alive
        self.authorization = authorization_of(headers)
        self.is_call = protocol.is_call(method, path)
        """Whether a replica answers the request."""
        self.translation = protocol.translation(path) if self.is_call else None
        """For replicas that do not have this endpoint."""
        content_type = headers.get(b"content-type", b"")
        self.is_form = content_type.startswith(b"multipart/")
        self.content_type = content_type if self.is_form else b"application/json"
        self.is_from_corral = _CLIENT in headers
        """Whether the client is one of Corral's own."""
        self.is_relayed = protocol.relays_unchanged and self.translation is None and not self.is_from_corral
        """Whether a replica's usual answer reaches the client with no header of its own."""
        # Every stream of a client without persistent connections waits for this, so it does nothing in vain.
        self.session = b"" if _SESSION.isdisjoint(headers) else _session_of(headers)
        """What the requests of one session have in common, if the client names it."""
        self.hops = _hops_of(headers[_HOPS]) if _HOPS in headers else ()
        """The attached endpoints, here or in other clusters, that led to this request."""
        forwarded = b"".join([b"%b: %b\r\n" % (name, headers[name]) for name in sorted(FORWARDED & headers.keys())])
        self.read_call = protocol.call_reader(self)
        self.opening = b"%b %b HTTP/1.1\r\n" % (method, path)
        self.sent = b"%bContent-Type: %b\r\nContent-Length: " % (forwarded, self.content_type)
        """The client's part of the head that a replica receives: between the endpoint's part and the length."""


def _session_of(headers: Mapping[bytes, bytes]) -> bytes:
    return next(headers[name][:SESSION_MAX_BYTES] for name in SESSION_HEADERS if name in headers)


def _hops_of(given: bytes) -> tuple[bytes, ...]:
    parts = [part.strip() for part in given[:HOPS_MAX_BYTES].split(b",")]
    return tuple(part for part in parts if _HOP.fullmatch(part))
