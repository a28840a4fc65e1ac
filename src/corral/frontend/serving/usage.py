"""Finds in passing how many tokens an answer says it used."""

import re

from corral.system.replica_calls import ChunkRelay

_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_MARK = b'_tokens"'
USAGE_BYTES = 256

Said = bytes | tuple[int, int]
"""The part of an answer that tells its tokens, unread; or the tokens themselves, in and out."""


def cut_usage(body: bytes) -> bytes:
    """The part of a whole answer that tells its usage; empty without. Inside a text the quotes would be escaped."""
    at = body.rfind(b'"usage"')
    return body[at : at + USAGE_BYTES] if at >= 0 else b""


def read_usage(part: bytes) -> tuple[int, int]:
    """Tokens in and out."""
    if not part:
        return 0, 0
    found_in, found_out = _IN.search(part), _OUT.search(part)
    return int(found_in[1]) if found_in else 0, int(found_out[1]) if found_out else 0


def stream_usage(relay: ChunkRelay, *, chunked: bool, whole: bool) -> tuple[int, int]:
    """The same from a stream's pieces: usage comes with the last ones. Without it, each event counts as a token.

    `chunked`: pieces are in HTTP's chunked coding, one chunk each."""
    kept = (_content(piece) for piece in relay.kept()) if chunked else relay.kept()
    found = cut_usage(b"".join(kept))
    if _MARK in found:
        return read_usage(found)
    # The last event of a whole stream is `[DONE]`.
    return 0, max(0, relay.events - 1) if whole else relay.events


def _content(chunk: bytes) -> bytes:
    return chunk[chunk.find(b"\r\n") + 2 : -2]
