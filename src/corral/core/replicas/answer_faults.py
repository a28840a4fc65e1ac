"""Whose fault error answers of an attached server are: one request's, one key's, or the server's own."""

from enum import Enum

REQUESTS = 3
"""So many different requests must fail before anyone avoids the server. A prompt that a server cannot answer fails
there each time, however often it is sent."""
KEYS = 2
KEYS_MAX = 64


class Blame(Enum):
    NONE = "only few requests failed"
    KEY = "only the requests of one key failed, so that key avoids the server"
    SERVER = "the requests of several keys failed"


class AnswerFaults:
    """The requests that a server answered with an error since it last answered one well."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, set[int]] = {}

    def add(self, key_id: str, request: int) -> Blame:
        """`request`: equal for equal requests."""
        if key_id not in self._by_key and len(self._by_key) >= KEYS_MAX:
            return Blame.NONE
        own = self._by_key.setdefault(key_id, set())
        if len(own) < REQUESTS:
            own.add(request)
        if len(self._by_key) >= KEYS and len(set().union(*self._by_key.values())) >= REQUESTS:
            return Blame.SERVER
        return Blame.KEY if len(own) >= REQUESTS else Blame.NONE

    def clear(self) -> None:
        self._by_key.clear()
