"""Finds in passing how many tokens an answer says it used."""

import re
from collections import deque

_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_MARK = b'_tokens"'
USAGE_BYTES = 256
LAST_PIECES = 4


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


class StreamUsage:
    """The same from a stream's pieces: usage comes with the last ones. Without it, each event counts as a token."""

    __slots__ = ("_chunked", "_last", "events", "keep")

    def __init__(self, *, chunked: bool) -> None:
        """`chunked`: pieces come in HTTP's chunked coding, one chunk each."""
        self._chunked = chunked
        self.events = 0
        self._last: deque[bytes] = deque(maxlen=LAST_PIECES)
        self.keep = self._last.append
        """Takes every piece, and keeps few."""

    def add(self, piece: bytes) -> None:
        self.events += piece.count(b"data: ")
        self.keep(piece)

    def result(self, *, whole: bool) -> tuple[int, int]:
        last = (_content(piece) for piece in self._last) if self._chunked else self._last
        found = cut_usage(b"".join(last))
        if _MARK in found:
            return read_usage(found)
        # The last event of a whole stream is `[DONE]`.
        return 0, max(0, self.events - 1) if whole else self.events


def _content(chunk: bytes) -> bytes:
    return chunk[chunk.find(b"\r\n") + 2 : -2]
