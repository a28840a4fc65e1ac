"""Finds in passing how many tokens an answer says it used."""

import re

_IN = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_OUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_MARK = b'_tokens"'
TAIL_BYTES = 512


def find_usage(body: bytes) -> tuple[int, int] | None:
    """From a whole answer, whose usage comes near its end. Inside a text the quotes would be escaped."""
    at = body.rfind(b'"usage"')
    if at < 0:
        return None
    found_in = _IN.search(body, at)
    found_out = _OUT.search(body, at)
    return (int(found_in[1]) if found_in else 0, int(found_out[1]) if found_out else 0)


class StreamUsage:
    """The same from a stream's pieces; without a word about usage, each event counts as a token."""

    __slots__ = ("_events", "_found", "_tail")

    def __init__(self) -> None:
        self._events = 0
        self._found: tuple[int, int] | None = None
        self._tail = b""

    def see(self, data: bytes) -> None:
        self._events += data.count(b"data: ")
        if self._tail:
            data = self._tail + data
        if _MARK in data:
            self._found = find_usage(data) or self._found
        self._tail = b"" if data.endswith(b"\n") else data[-TAIL_BYTES:]

    def result(self) -> tuple[int, int]:
        # The last event is `[DONE]`.
        return self._found or (0, max(0, self._events - 1))
