"""Why requests went where they went: the latest ones, recorded as they end, and described when somebody asks."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from corral.bus.request_trace import TracedFailure, TracedReplica, TracedRequest, TracedSkip
from corral.core.replicas.public_routes import TargetState
from corral.frontend.gateway.endpoints import Endpoint, Pick, PickFields, ServedModel
from corral.frontend.gateway.queueing import Turn
from corral.frontend.gateway.token_usage import ReportedUsage, read_usages
from corral.system import Clock

KEPT = 8192


class FailedAttempt(NamedTuple):
    endpoint: Endpoint
    outstanding_before: int
    pick: PickFields | None
    error: str


class RequestTrace:
    """What happened to a request that did not go straight to a replica and back."""

    __slots__ = (
        "continuations", "ending", "failures", "has_turn", "load_s", "position", "queued_s", "route", "sent_s",
        "skipped", "state", "turn", "waited_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sent_s = 0.0
        """When it was last sent to a replica. A request without a trace was sent when it began."""
        self.load_s: float | None = None
        """How long it waited for a load."""
        self.queued_s: float | None = None
        """How long it waited in queues."""
        self.waited_s = 0.0
        """As `queued_s`, since its answer last began: what counts towards the longest wait."""
        self.has_turn = False
        """Whether it was taken from the queue and has not been sent since. Its line has paid for it."""
        self.turn: Turn | None = None
        """What it paid for its turns, while that is an estimate."""
        self.position = 0
        """Its position when it first joined the queue."""
        self.failures: list[FailedAttempt] = []
        self.continuations = 0
        """How often another replica continued the answer."""
        self.route = ""
        """The public route that led to the model."""
        self.skipped: list[tuple[ServedModel, TargetState]] = []
        """The models that the route prefers, and why they did not get the request."""
        self.state = "answered"
        self.ending = ""

    def settle_turn(self, reported: ReportedUsage, status: int) -> None:
        """The request was answered, completely or in part: its key's line pays for what it used."""
        turn, self.turn = self.turn, None
        if turn is None:
            return
        if status >= 400:
            turn.forfeit(was_sent=True)
        else:
            turn.settle(*(read_usages((reported,)) if isinstance(reported, bytes) else reported))

    def forfeit_turn(self) -> None:
        """The request ended without an answer."""
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.forfeit(was_sent=not self.has_turn)


class RequestRecord(NamedTuple):
    """One request, for metrics, usage and traces."""

    number: int
    served: ServedModel
    endpoint: Endpoint | None
    outstanding_before: int
    """Requests that the replica already had."""
    pick: PickFields | None
    status: int
    key_id: str | None
    path: bytes
    began_s: float
    first_byte_s: float
    """0 when the answer has not begun."""
    ended_s: float
    """0 for a request that is still open."""
    trace: RequestTrace | None


RecordFields = tuple[
    int,
    ServedModel,
    Endpoint | None,
    int,
    PickFields | None,
    int,
    str | None,
    bytes,
    float,
    float,
    float,
    RequestTrace | None,
]
"""The fields of a `RequestRecord` in order. A plain tuple costs a seventh, so it is what the warm path makes, and what
`RequestAccounting` counts by the positions below."""
ENDPOINT: Final = 2
STATUS: Final = 5
KEY_ID: Final = 6
BEGAN_S: Final = 8
FIRST_BYTE_S: Final = 9
ENDED_S: Final = 10
TRACE: Final = 11


class TraceBuffer:
    def __init__(self, name: str, clock: Clock) -> None:
        self.prefix = f"{name}-"
        self.entries: deque[RecordFields] = deque(maxlen=KEPT)
        self._clock = clock

    def find(self, request_id: str, open_requests: Iterable[RecordFields]) -> TracedRequest | None:
        """None when another frontend had the request, or when it is no longer kept."""
        number = self._number(request_id)
        if number is None:
            return None
        for record in self._all(open_requests):
            if record[0] == number:
                return self._describe(request_id, RequestRecord._make(record))
        return None

    def _number(self, request_id: str) -> int | None:
        digits = request_id.removeprefix(self.prefix)
        if digits == request_id or not 0 < len(digits) <= 16:
            return None
        try:
            return int(digits, 16)
        except ValueError:
            return None

    def _all(self, open_requests: Iterable[RecordFields]) -> Iterator[RecordFields]:
        yield from reversed(self.entries)
        yield from open_requests

    def _describe(self, request_id: str, record: RequestRecord) -> TracedRequest:
        now_s = self._clock.monotonic_s()
        trace = record.trace or RequestTrace()
        found = TracedRequest(
            id=request_id,
            model=record.served.name,
            path=record.path.decode("latin-1"),
            began_at=self._clock.now_ms() - round((now_s - record.began_s) * 1000),
            state=trace.state if record.ended_s else "open",
            status=record.status,
            key=record.key_id or "",
            first_byte_s=record.first_byte_s - record.began_s if record.first_byte_s else None,
            took_s=(record.ended_s or now_s) - record.began_s,
            load_waited_s=trace.load_s,
            queued_s=trace.queued_s,
            queue_position=trace.position or None,
            failed=tuple(
                TracedFailure(failed.endpoint.replica.id, failed.endpoint.replica.node_name, failed.error)
                for failed in trace.failures
            ),
            continuations=trace.continuations,
            route=trace.route,
            skipped=tuple(TracedSkip(served.name, state.value) for served, state in trace.skipped),
            ending=trace.ending,
        )
        if record.endpoint is None:
            return found
        if record.pick is None:
            return _with_only(found, record.endpoint, record.outstanding_before)
        return _with_pick(found, Pick._make(record.pick))


def _with_only(note: TracedRequest, endpoint: Endpoint, outstanding: int) -> TracedRequest:
    return msgspec.structs.replace(
        note, chosen=_show(endpoint, outstanding), rule="only", candidates=(_show(endpoint),)
    )


def _with_pick(note: TracedRequest, pick: Pick) -> TracedRequest:
    return msgspec.structs.replace(
        note,
        chosen=_show(pick.chosen, pick.chosen_outstanding),
        rule="only" if len(pick.candidates) == 1 else pick.rule,
        against=_show(pick.other, pick.other_outstanding) if pick.other is not pick.chosen else None,
        candidates=tuple(_show(endpoint) for endpoint in pick.candidates),
    )


def _show(endpoint: Endpoint, outstanding: int | None = None) -> TracedReplica:
    replica = endpoint.replica
    return TracedReplica(replica.id, replica.node_name, replica.slot, outstanding)
