"""One request as the lane holds it, and what the lane answers at all."""

from dataclasses import dataclass

PREFIX = b"/v1/"
PROXIED = frozenset(
    b"/v1/" + name
    for name in (
        b"chat/completions",
        b"completions",
        b"embeddings",
        b"rerank",
        b"audio/transcriptions",
        b"audio/speech",
        b"images/generations",
        b"responses",
    )
)
MODELS = b"/v1/models"

# All of a client's headers that a replica gets to see.
FORWARDED = {
    b"accept": b"Accept: ",
    b"traceparent": b"Traceparent: ",
    b"tracestate": b"Tracestate: ",
    b"x-request-id": b"X-Request-Id: ",
    b"openai-beta": b"OpenAI-Beta: ",
}
SESSION_HEADERS = frozenset({b"x-session-id", b"x-corral-session"})


@dataclass(slots=True)
class Request:
    method: bytes = b""
    path: bytes = b""
    authorization: bytes = b""
    cookie: bytes = b""
    content_type: bytes = b""
    session: bytes = b""
    from_page: bool = False
    """Sent by our own web UI, as a header says that no other site can send."""
    forwarded: bytes = b""
    body: bytes = b""
    expects: bool = False
    """Its client waits to be told that it may send the body."""
    too_large: bool = False
    http11: bool = True
    keep_alive: bool = True
