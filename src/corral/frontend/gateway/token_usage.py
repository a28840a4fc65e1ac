"""Finds in passing how many tokens an answer says it used."""

import re
from collections.abc import Iterable

from corral.frontend.gateway.upstream.calls import ChunkRelay

# Each takes the rest of its part too, so that every part tells its number once. JSON has no zero bytes.
_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})[^\0]*')
_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})[^\0]*')
_MARK = b'_tokens"'
# llama.cpp tells these with its last event whether somebody asked for the usage or not. What it had read for an earlier
# request (`cache_n`) was sent with this one all the same.
_TIMINGS = b'"timings"'
_TIMED_IN = re.compile(rb'"(?:cache|prompt)_n"\s*:\s*(\d{1,12})')
_TIMED_OUT = re.compile(rb'"predicted_n"\s*:\s*(\d{1,12})')
USAGE_BYTES = 256

Said = bytes | tuple[int, int]
"""The part of an answer that tells its tokens, unread; or the tokens themselves, in and out."""


def cut_usage(body: bytes) -> bytes:
    """The part of a whole answer that tells its usage; empty without. Inside a text the quotes would be escaped."""
    at = body.rfind(b'"usage"')
    return body[at : at + USAGE_BYTES] if at >= 0 else b""


def read_usages(parts: Iterable[bytes]) -> tuple[int, int]:
    """Tokens in and out of all of them together. At once, because reading many costs little more than reading one."""
    joined = b"\0".join(parts)
    return sum(map(int, _IN.findall(joined))), sum(map(int, _OUT.findall(joined)))


def stream_usage(relay: ChunkRelay, *, chunked: bool, whole: bool) -> tuple[int, int]:
    """The same from a stream's pieces: usage comes with the last ones, if the client asked for it. Without any word of
    it, each event counts as a token.

    `chunked`: pieces are in HTTP's chunked coding, one chunk each."""
    kept = (_content(piece) for piece in relay.kept()) if chunked else relay.kept()
    last = b"".join(kept)
    found = cut_usage(last)
    if _MARK in found:
        return read_usages((found,))
    timed = last[last.rfind(_TIMINGS) :] if _TIMINGS in last else b""
    if out := _TIMED_OUT.search(timed):
        return sum(map(int, _TIMED_IN.findall(timed))), int(out[1])
    # The last event of a whole stream is `[DONE]`.
    return 0, max(0, relay.events - 1) if whole else relay.events


def _content(chunk: bytes) -> bytes:
    return chunk[chunk.find(b"\r\n") + 2 : -2]
