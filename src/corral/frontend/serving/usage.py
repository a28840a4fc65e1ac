"""Finds in passing how many tokens an answer says it used."""

import re

_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_MARK = b'_tokens"'
USAGE_BYTES = 256
TAIL_BYTES = 512


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
    """The same from a stream's pieces; without a word about usage, each event counts as a token."""

    __slots__ = ("_events", "_found", "_tail")

    def __init__(self) -> None:
        self._events = 0
        self._found = b""
        self._tail = b""

    def see(self, data: bytes) -> None:
        self._events += data.count(b"data: ")
        if self._tail:
            data = self._tail + data
        if _MARK in data:
            self._found = cut_usage(data) or self._found
        self._tail = b"" if data.endswith(b"\n") else data[-TAIL_BYTES:]

    def result(self) -> tuple[int, int]:
        # The last event is `[DONE]`.
        return read_usage(self._found) if self._found else (0, max(0, self._events - 1))
