"""What the lane answers at all, and which of a client's headers it looks at."""

PREFIX = b"/v1/"
PROXIED = frozenset(
    PREFIX + name
    for name in (
        b"chat/completions",
        b"completions",
        b"embeddings",
        b"rerank",
        b"audio/transcriptions",
        b"audio/translations",
        b"audio/speech",
        b"images/generations",
        b"responses",
    )
)
MODELS = b"/v1/models"

FORWARDED = frozenset({b"accept", b"traceparent", b"tracestate", b"x-request-id", b"openai-beta"})
"""All of a client's headers that a replica gets to see, beside the content type."""
SESSION_HEADERS = (b"x-corral-session", b"x-session-id")
SESSION_MOST_BYTES = 256
