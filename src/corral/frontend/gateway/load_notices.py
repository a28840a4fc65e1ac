"""What a streaming client gets while its model is loaded, where a setting says so: comments of server-sent events.

Every client of such streams ignores comments, and every proxy counts them as traffic. The first one is sent with the
head of the answer, so from then on a failure can only be told as the last event."""

from corral.frontend.gateway.upstream.calls import Headers

NOTIFIED_PATHS = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/messages", b"/v1/responses"})
"""Their streams are server-sent events."""
EVENTS: Headers = {b"content-type": b"text/event-stream", b"cache-control": b"no-cache"}
NOTICE_MAX_CHARS = 500


def load_notice(model: str, progress: str) -> bytes:
    """`progress` may hold any text: a comment is one line, and ends with an empty one as every event does."""
    text = f"{model} is being loaded{f': {progress}' if progress else ''}"
    line = " ".join(text.split())[:NOTICE_MAX_CHARS]
    return f": {line}\n\n".encode()
