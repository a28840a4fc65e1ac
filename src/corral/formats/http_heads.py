"""HTTP heads that are repeated byte for byte, except for their content length.

A client on a persistent connection mostly sends the same head again. Equal bytes have the same meaning, so a head that
was parsed once is not parsed again. Only the digits of the content length may differ, and they are read each time.
"""

from typing import Generic, TypeVar

T = TypeVar("T")

_FIELD = b"\r\ncontent-length:"
DIGITS_MOST = 12
# Heads that are never repeated (with a request id in each) are not remembered.
MISSES_MOST = 8
NOT_LEARNED = 1 << 62


class RepeatedHead(Generic[T]):
    __slots__ = ("_at", "_beside_body", "_misses", "_prefix", "_suffix", "value")

    def __init__(self) -> None:
        self._prefix = b""
        self._suffix = b""
        self._at = 0
        self._beside_body = NOT_LEARNED
        """The length of the head when its content length has as many digits as the last one."""
        self._misses = 0
        self.value: T | None = None

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one message with the remembered head."""
        beside = self._beside_body
        length = len(data) - beside
        # The whole head in one comparison.
        if length >= 0 and data[:beside] == b"%b%d%b" % (self._prefix, length, self._suffix):
            if self._misses:
                self._misses = 0
            return data[beside:]
        return self._body_with_other_digits(data)

    def _body_with_other_digits(self, data: bytes) -> bytes | None:
        at = self._at
        if not at or not data.startswith(self._prefix):
            return None
        end = data.find(b"\r\n", at, at + DIGITS_MOST)
        digits = data[at:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._suffix, end):
            return None
        body_at = end + len(self._suffix)
        if len(data) - body_at != int(digits):
            return None
        self._beside_body = body_at
        self._misses = 0
        return data[body_at:]

    def learn(self, data: bytes, value: T) -> None:
        """Remembers the head of `data`, which was parsed as exactly one message. `value`: the parsed head."""
        if self._misses > MISSES_MOST:
            self._at = 0
            self._beside_body = NOT_LEARNED
            return
        self._misses += 1
        head_end = data.find(b"\r\n\r\n")
        head = data[:head_end].lower()
        field = head.find(_FIELD)
        if field < 0 or head.find(_FIELD, field + 1) >= 0:
            return
        at = field + len(_FIELD)
        while data[at : at + 1] == b" ":
            at += 1
        end = data.find(b"\r\n", at)
        if not data[at:end].isdigit() or len(data) - head_end - 4 != int(data[at:end]):
            return
        self._prefix = data[:at]
        self._suffix = data[end : head_end + 4]
        self._at = at
        self._beside_body = head_end + 4
        self.value = value
