"""Why requests went where they went: the latest of them, noted as they end, put into words when somebody asks.

A note is a tuple of what the request had in its hands anyway, so that it costs an append.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from corral.bus.request_trace import TracedFailure, TracedReplica, TracedRequest
from corral.frontend.gateway.targets import Endpoint, Pick, ServedModel
from corral.system import Clock

KEPT = 8192


class RequestTrace:
    """Of a request that did not go straight to a replica and back."""

    __slots__ = ("ending", "failures", "load_s", "position", "queued_s", "state")

    def __init__(self) -> None:
        self.load_s: float | None = None
        self.queued_s: float | None = None
        self.position = 0
        self.failures: list[tuple[Endpoint, str]] = []
        self.state = "answered"
        self.ending = ""


Note = tuple[
    int,
    ServedModel,
    Endpoint | None,
    int,
    Pick | None,
    int,
    str | None,
    bytes,
    float,
    float,
    float,
    RequestTrace | None,
]
"""Number, model; replica, its open requests before this one, how it was picked from several; status, key, path; when it
began, got its first byte, ended; and what else happened to it."""


class TraceBuffer:
    def __init__(self, name: str, clock: Clock) -> None:
        self.prefix = f"{name}-"
        self.entries: deque[Note] = deque(maxlen=KEPT)
        self._clock = clock

    def find(self, request_id: str, open_requests: Iterable[Note]) -> TracedRequest | None:
        """None when it is another frontend's, or forgotten."""
        number = self._number(request_id)
        if number is None:
            return None
        for note in self._all(open_requests):
            if note[0] == number:
                return self._tell(request_id, note)
        return None

    def _number(self, request_id: str) -> int | None:
        digits = request_id.removeprefix(self.prefix)
        if digits == request_id or not 0 < len(digits) <= 16:
            return None
        try:
            return int(digits, 16)
        except ValueError:
            return None

    def _all(self, open_requests: Iterable[Note]) -> Iterator[Note]:
        yield from reversed(self.entries)
        yield from open_requests

    def _tell(self, request_id: str, note: Note) -> TracedRequest:
        _, served, target, open_requests, pick, status, key_id, path, began_s, first_s, ended_s, story = note
        now_s = self._clock.monotonic_s()
        story = story or RequestTrace()
        found = TracedRequest(
            id=request_id,
            model=served.name,
            path=path.decode("latin-1"),
            began_at=self._clock.now_ms() - round((now_s - began_s) * 1000),
            state=story.state if ended_s else "open",
            status=status,
            key=key_id or "",
            first_byte_s=first_s - began_s if first_s else None,
            took_s=(ended_s or now_s) - began_s,
            load_waited_s=story.load_s,
            queued_s=story.queued_s,
            queue_position=story.position or None,
            failed=tuple(
                TracedFailure(target.replica.id, target.replica.node_name, error) for target, error in story.failures
            ),
            ending=story.ending,
        )
        if target is None:
            return found
        return _with_target(found, target, open_requests) if pick is None else _with_pick(found, pick)


def _with_target(note: TracedRequest, target: Endpoint, open_requests: int) -> TracedRequest:
    return msgspec.structs.replace(note, chosen=_show(target, open_requests), rule="only", candidates=(_show(target),))


def _with_pick(note: TracedRequest, pick: Pick) -> TracedRequest:
    chosen, chosen_open, other, other_open, rule, candidates = pick
    return msgspec.structs.replace(
        note,
        chosen=_show(chosen, chosen_open),
        rule="only" if len(candidates) == 1 else rule,
        against=_show(other, other_open) if other is not chosen else None,
        candidates=tuple(_show(target) for target in candidates),
    )


def _show(target: Endpoint, open_requests: int | None = None) -> TracedReplica:
    replica = target.replica
    return TracedReplica(replica.id, replica.node_name, replica.slot, open_requests)
