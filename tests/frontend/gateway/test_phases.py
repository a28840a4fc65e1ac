"""The phases of a proxied request: what each event does in each phase, and what follows a failure.

A real gateway, with a scripted upstream, key lookup and loads in place of sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from corral.core.errors import Unavailable
from corral.core.replicas.attached import ServerTrust
from corral.core.replicas.routing import ModelRoute, ReplicaId, RouteReplica, RouteSnapshot
from corral.frontend.gateway.endpoints import Endpoint, Pick, ServedModel
from corral.frontend.gateway.error_responses import stopping
from corral.frontend.gateway.failover import ATTEMPTS_MAX, Failures, Step, Verdict, judge_error, next_step
from corral.frontend.gateway.gateway import Gateway
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import LoadFailed
from corral.frontend.gateway.metrics import GatewayMetrics
from corral.frontend.gateway.openai import OPENAI
from corral.frontend.gateway.phases import (
    ENDED,
    TRANSITIONS,
    Authenticating,
    AwaitingLoad,
    Ended,
    Phase,
    Probing,
    Queued,
    Relaying,
    Resolving,
    Routing,
    Sent,
)
from corral.frontend.gateway.proxied_request import ProxiedRequest
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.request_trace import (
    BEGAN_S,
    ENDED_S,
    ENDPOINT,
    FIRST_BYTE_S,
    KEY_ID,
    STATUS,
    RequestRecord,
)
from corral.frontend.gateway.upstream.calls import ChunkRelay, Failure, FailureKind, Headers, ResponseSink
from corral.system import SystemClock, SystemIds
from corral.telemetry.metrics import MetricRegistry

BODY = b'{"model":"m","messages":[]}'
JSON: Headers = {b"Content-Type": b"application/json"}
EVENTS: Headers = {b"Content-Type": b"text/event-stream"}
ANSWER = b'{"object":"chat.completion"}'
EVENT = b"data: {}\n\n"
BROKEN = Failure(FailureKind.BROKEN, "it closed the connection")
UNREACHABLE = Failure(FailureKind.UNREACHABLE, "connection refused")


class ScriptedCall:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def relay_chunks(self, relay: ChunkRelay) -> None: ...


class ScriptedLink:
    def __init__(self) -> None:
        self.sinks: list[ResponseSink] = []
        self.calls: list[ScriptedCall] = []
        self.probed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def send(self, request: bytes, sink: ResponseSink) -> ScriptedCall:
        self.sinks.append(sink)
        self.calls.append(ScriptedCall())
        return self.calls[-1]

    async def probe(self, request: bytes, *, within_s: float) -> bool:
        return await self.probed

    def close(self) -> None: ...


@dataclass
class ScriptedUpstream:
    links: dict[str, ScriptedLink] = field(default_factory=dict)

    def open(self, address: str, *, trust: ServerTrust | None = None) -> ScriptedLink:
        return self.links.setdefault(address, ScriptedLink())


class Client:
    """A client's connection that records what it is sent."""

    def __init__(self) -> None:
        self.received = b""
        self.write: Callable[[bytes], None] = self._receive
        self.is_known = False
        self.is_slow = False
        self.kept: bool | None = None
        self.is_aborted = False

    def _receive(self, data: bytes) -> None:
        self.received += data

    def done(self, *, keep: bool) -> None:
        assert self.kept is None, "a request ends once"
        self.kept = keep

    def abort(self) -> None:
        self.is_aborted = True

    def address(self) -> str:
        return "127.0.0.1"

    @property
    def status(self) -> int:
        return int(self.received.split(b" ", 2)[1]) if self.received else 0


class ScriptedKeys:
    """One key is in memory; another is only in the store, which answers when the test says so."""

    def __init__(self) -> None:
        self.found: asyncio.Future[ClientKey | None] = asyncio.get_running_loop().create_future()

    def find(self, authorization: bytes) -> ClientKey | None:
        return ClientKey("key-1", "one") if authorization == b"Bearer known" else None

    async def authenticate(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], method: str, address: str
    ) -> ClientKey | None:
        return await self.found


class ScriptedLoads:
    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ensure(self, model: str, *, within_s: float) -> None:
        await self.done

    def describe(self, model: str) -> str:
        return ""


class ScriptedRoutes:
    def __init__(self) -> None:
        self.snapshot = RouteSnapshot(version=0, routes=())
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def read_version(self) -> int:
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.snapshot.version

    async def read_routes(self) -> RouteSnapshot:
        return self.snapshot


class Rig:
    def __init__(self) -> None:
        self.upstream, self.keys, self.loads = ScriptedUpstream(), ScriptedKeys(), ScriptedLoads()
        self.routes, self.client = ScriptedRoutes(), Client()
        clock = SystemClock()
        self.gateway = Gateway(
            keys=self.keys,
            routes=self.routes,
            upstream=self.upstream,
            inflight=InFlight("test", run="1"),
            metrics=GatewayMetrics(MetricRegistry()),
            loads=self.loads,
            drivers={},
            clock=clock,
            draw=SystemIds().draw,
            limits=GatewayLimits(),
        )
        self.phases: list[type[Phase]] = []
        self.request: ProxiedRequest | None = None

    def serve(self, *names: str, capacity: int = 1) -> None:
        replicas = tuple(replica(name, capacity=capacity) for name in names)
        version = self.routes.snapshot.version + 1
        self.routes.snapshot = RouteSnapshot(version=version, routes=(ModelRoute(model="m", replicas=replicas),))
        self.gateway.table.apply(self.routes.snapshot)

    def start(self, *, authorization: bytes = b"Bearer known") -> ProxiedRequest:
        head = RequestHead(
            OPENAI, b"POST", b"/v1/chat/completions", {b"authorization": authorization}, http11=True, keep_alive=True
        )
        self.request = watched(self.gateway, self.client, head, self.phases)
        self.request.start()
        return self.request

    def link(self, name: str = "a") -> ScriptedLink:
        return self.upstream.links[f"{name}:1"]

    def leases(self) -> int:
        return sum(self.gateway.inflight.snapshot().replicas.values())

    async def settle(self) -> None:
        """Lets tasks that are ready run to their next wait."""
        for _ in range(20):
            await asyncio.sleep(0)


class WatchedRequest(ProxiedRequest):
    """Records each phase, and checks each change against `TRANSITIONS`."""

    recorded: list[type[Phase]]

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_phase":
            before, after = type(self.phase), type(value)
            assert after in TRANSITIONS[before], f"{before.__name__} -> {after.__name__}"
            self.recorded.append(after)
        super().__setattr__(name, value)


def watched(gateway: Gateway, client: Client, head: RequestHead, phases: list[type[Phase]]) -> ProxiedRequest:
    request = WatchedRequest(gateway, client, head, BODY)
    request.recorded = phases
    return request


def replica(name: str, *, capacity: int = 1, protocol: str = "openai") -> RouteReplica:
    return RouteReplica(
        id=ReplicaId(f"replica-{name}"), node_id=f"id-{name}", node_name=f"node-{name}", slot=0, address=f"{name}:1",
        protocol=protocol, token="t", generation=1, capacity=capacity, revision="r",
    )  # fmt: skip


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    rig = Rig()
    async with rig.gateway:
        yield rig


# How a request gets into each phase.


async def authenticating(rig: Rig) -> None:
    rig.serve("a")
    rig.start(authorization=b"Bearer new")


async def resolving(rig: Rig) -> None:
    rig.start()


async def loading(rig: Rig) -> None:
    rig.serve()
    rig.start()


async def queued(rig: Rig) -> None:
    rig.serve("a", capacity=1)
    occupy(rig)
    rig.start()


async def sent(rig: Rig) -> None:
    rig.serve("a")
    rig.start()


async def sent_of_two(rig: Rig) -> None:
    rig.serve("a", "b")
    occupy(rig, "b")
    rig.start()
    release(rig, "b")


async def holding(rig: Rig) -> None:
    """A JSON answer has begun. It is held until it is complete."""
    await sent(rig)
    sink(rig).on_answer(200, JSON, ANSWER[:5], False)


async def relaying(rig: Rig) -> None:
    await sent(rig)
    sink(rig).on_answer(200, EVENTS, EVENT, False)


async def relaying_head(rig: Rig) -> None:
    """The client has the head of a stream, and no event yet."""
    await sent(rig)
    sink(rig).on_answer(200, EVENTS, b"", False)


async def relaying_words(rig: Rig) -> None:
    """The client has a part of a text."""
    await sent(rig)
    sink(rig).on_answer(200, EVENTS, b'data: {"choices":[{"index":0,"delta":{"content":"One"}}]}\n\n', False)


async def relaying_bytes(rig: Rig) -> None:
    """An answer that is neither JSON nor a stream of events, so an error cannot be written into it."""
    await sent(rig)
    sink(rig).on_answer(200, {b"Content-Type": b"audio/wav", b"Content-Length": b"9"}, b"RIFF", False)


async def probing(rig: Rig) -> None:
    await sent(rig)
    sink(rig).on_failure(BROKEN)


async def waiting_for_return(rig: Rig) -> None:
    await sent(rig)
    sink(rig).on_failure(UNREACHABLE)


async def ended(rig: Rig) -> None:
    await sent(rig)
    sink(rig).on_answer(200, JSON, ANSWER, True)


def endpoint(rig: Rig, name: str = "a") -> Endpoint:
    return next(one for one in rig.gateway.table.endpoints() if one.replica.node_name == f"node-{name}")


def sink(rig: Rig, name: str = "a") -> ResponseSink:
    return rig.link(name).sinks[-1]


def occupy(rig: Rig, name: str = "a") -> None:
    rig.gateway.inflight.begin(endpoint(rig, name))


def release(rig: Rig, name: str = "a") -> None:
    rig.gateway.inflight.end(endpoint(rig, name))


# The events. Each returns nothing: the table says what follows.


def key_found(rig: Rig) -> None:
    rig.keys.found.set_result(ClientKey("key-2", "two"))


def key_unknown(rig: Rig) -> None:
    rig.keys.found.set_result(None)


def store_fails(rig: Rig) -> None:
    rig.keys.found.set_exception(Unavailable("the store is unreachable"))


def model_appears(rig: Rig) -> None:
    replicas = (replica("a"),)
    rig.routes.snapshot = RouteSnapshot(version=7, routes=(ModelRoute(model="m", replicas=replicas),))
    rig.routes.may_answer.set()


def model_stays_unknown(rig: Rig) -> None:
    rig.routes.may_answer.set()


def table_fails(rig: Rig) -> None:
    rig.routes.error = Unavailable("the store is unreachable")
    rig.routes.may_answer.set()


def load_done(rig: Rig) -> None:
    rig.loads.done.set_result(None)
    rig.serve("a")


def load_failed(rig: Rig) -> None:
    rig.loads.done.set_exception(LoadFailed("no node has 40 GiB of memory"))


def load_crashed(rig: Rig) -> None:
    rig.loads.done.set_exception(RuntimeError("a bug"))


def capacity_appears(rig: Rig) -> None:
    release(rig)


def replicas_gone(rig: Rig) -> None:
    rig.serve()
    rig.gateway._dispatch(rig.gateway.table.by_name["m"])


def queue_times_out(rig: Rig) -> None:
    served = rig.gateway.table.by_name["m"]
    for waiter in list(served.queue):
        waiter.deadline_s = 0.0
    rig.gateway._tick()


def answered(rig: Rig) -> None:
    sink(rig).on_answer(200, JSON, ANSWER, True)


def begins_json(rig: Rig) -> None:
    sink(rig).on_answer(200, JSON, ANSWER[:5], False)


def begins_events(rig: Rig) -> None:
    sink(rig).on_answer(200, EVENTS, EVENT, False)


def continues(rig: Rig) -> None:
    sink(rig).on_data(EVENT, False)


def completes(rig: Rig) -> None:
    sink(rig).on_data(b"", True)


def answers_with(status: int) -> Callable[[Rig], None]:
    def event(rig: Rig) -> None:
        sink(rig).on_answer(status, JSON, b"{}", True)

    event.__name__ = f"answers_{status}"
    return event


def breaks(rig: Rig) -> None:
    sink(rig).on_failure(BROKEN)


def is_unreachable(rig: Rig) -> None:
    sink(rig).on_failure(UNREACHABLE)


def process_is_dead(rig: Rig) -> None:
    rig.link().probed.set_result(False)


def process_is_alive(rig: Rig) -> None:
    rig.link().probed.set_result(True)


def probes_fail(rig: Rig) -> None:
    """For so long that even an answer that has begun is broken off."""
    request = rig.request
    assert request is not None
    request.tick(rig.gateway.now_s())
    request.abandon(endpoint(rig), "3 health probes in a row failed", 3600.0)


def silent_for_too_long(rig: Rig) -> None:
    request = rig.request
    assert request is not None
    request.tick(rig.gateway.now_s())
    request.tick(rig.gateway.now_s() + 3600)


def client_leaves(rig: Rig) -> None:
    assert rig.request is not None
    rig.request.cancel()


def frontend_stops(rig: Rig) -> None:
    assert rig.request is not None
    rig.request.stop(stopping())


Setup = Callable[[Rig], Awaitable[None]]
TABLE: list[tuple[Setup, Callable[[Rig], None], type[Phase], int]] = [
    # in this phase      this happens            leads to     and the client has this status (0: nothing yet)
    (authenticating, key_found, Sent, 0),
    (authenticating, key_unknown, Ended, 401),
    (authenticating, store_fails, Ended, 503),
    (authenticating, client_leaves, Ended, 0),
    (authenticating, frontend_stops, Ended, 503),
    (resolving, model_appears, Sent, 0),
    (resolving, model_stays_unknown, Ended, 404),
    (resolving, table_fails, Ended, 503),
    (resolving, client_leaves, Ended, 0),
    (resolving, frontend_stops, Ended, 503),
    (loading, load_done, Sent, 0),
    (loading, load_failed, Ended, 503),
    (loading, load_crashed, Ended, 500),
    (loading, client_leaves, Ended, 0),
    (loading, frontend_stops, Ended, 503),
    (queued, capacity_appears, Sent, 0),
    (queued, replicas_gone, AwaitingLoad, 0),
    (queued, queue_times_out, Ended, 503),
    (queued, client_leaves, Ended, 0),
    (queued, frontend_stops, Ended, 503),
    (sent, answered, Ended, 200),
    (sent, begins_json, Sent, 0),
    (sent, begins_events, Relaying, 200),
    (sent, answers_with(400), Ended, 400),
    (sent, answers_with(401), Queued, 0),  # another process has the address; the replica may restart
    (sent, answers_with(404), Ended, 404),
    (sent, answers_with(503), Ended, 503),  # the only replica's own error
    (sent, breaks, Probing, 0),
    (sent, is_unreachable, Queued, 0),
    (sent, probes_fail, Sent, 0),  # no other replica could answer it
    (sent, silent_for_too_long, Ended, 504),
    (sent, client_leaves, Ended, 0),
    (sent, frontend_stops, Ended, 503),
    (sent_of_two, answers_with(503), Sent, 0),  # the other replica has it now
    (sent_of_two, breaks, Sent, 0),
    (sent_of_two, is_unreachable, Sent, 0),
    (sent_of_two, probes_fail, Sent, 0),
    (holding, completes, Ended, 200),
    (holding, breaks, Probing, 0),
    (holding, client_leaves, Ended, 0),
    (relaying, continues, Relaying, 200),
    (relaying, completes, Ended, 200),
    (relaying, breaks, Ended, 200),
    (relaying, probes_fail, Ended, 200),
    (relaying, silent_for_too_long, Ended, 200),
    (relaying, client_leaves, Ended, 200),
    (relaying, frontend_stops, Ended, 200),
    (relaying_bytes, breaks, Ended, 200),
    (relaying_head, breaks, Probing, 200),
    (relaying_head, client_leaves, Ended, 200),
    (relaying_head, frontend_stops, Ended, 200),
    (relaying_words, breaks, Ended, 200),
    (probing, process_is_dead, Queued, 0),
    (probing, process_is_alive, Ended, 502),
    (probing, client_leaves, Ended, 0),
    (probing, frontend_stops, Ended, 503),
    (waiting_for_return, queue_times_out, Ended, 503),
    (ended, client_leaves, Ended, 200),
    (ended, frontend_stops, Ended, 200),
    (ended, silent_for_too_long, Ended, 200),
    (ended, probes_fail, Ended, 200),
]


@pytest.mark.parametrize(
    ("setup", "event", "phase", "status"), TABLE, ids=[f"{row[0].__name__}-{row[1].__name__}" for row in TABLE]
)
async def test_each_event_in_each_phase(
    setup: Setup, event: Callable[[Rig], None], phase: type[Phase], status: int
) -> None:
    async with running() as rig:
        await setup(rig)
        await rig.settle()
        event(rig)
        await rig.settle()
        request = rig.request
        assert request is not None
        assert (type(request.phase), rig.client.status) == (phase, status)
        others = 1 if setup is queued and event is not capacity_appears and event is not replicas_gone else 0
        if event is not replicas_gone:
            assert rig.leases() == others + (1 if phase in (Sent, Relaying) else 0), "a lease for each attempt"
        if phase is Ended:
            assert not rig.gateway._spawned, "no task is left"
            assert all(not len(served.queue) for served in rig.gateway.table.models()), "the queue is empty"
            request.cancel()
            request.stop(stopping())
            assert request.phase is ENDED


def test_the_table_has_every_phase_and_every_transition_it_can_make() -> None:
    phases = {Routing, Authenticating, Resolving, AwaitingLoad, Probing, Queued, Sent, Relaying, Ended}
    assert set(TRANSITIONS) == phases
    assert set().union(*TRANSITIONS.values()) == phases
    assert not TRANSITIONS[Ended]


async def test_all_transitions_happen_in_the_table() -> None:
    seen: set[tuple[type[Phase], type[Phase]]] = set()
    for setup, event, _, _ in TABLE:
        async with running() as rig:
            await setup(rig)
            await rig.settle()
            event(rig)
            await rig.settle()
            seen |= set(zip([Routing, *rig.phases], rig.phases, strict=False))
    assert seen == {(before, after) for before, followers in TRANSITIONS.items() for after in followers}


@pytest.mark.parametrize(("setup", "event"), [(relaying, breaks), (relaying, frontend_stops)])
async def test_a_stream_that_breaks_off_ends_with_an_error_event(setup: Setup, event: Callable[[Rig], None]) -> None:
    async with running() as rig:
        await setup(rig)
        event(rig)
        assert b'data: {"error":' in rig.client.received
        assert rig.client.received.endswith(b"0\r\n\r\n")
        assert (rig.client.kept, rig.client.is_aborted) == (True, False)


async def test_other_answers_that_break_off_end_with_the_connection() -> None:
    async with running() as rig:
        await relaying_bytes(rig)
        breaks(rig)
        assert (rig.client.kept, rig.client.is_aborted) == (None, True)


@pytest.mark.parametrize("event", [client_leaves, frontend_stops, silent_for_too_long])
@pytest.mark.parametrize("setup", [sent, relaying])
async def test_a_request_that_ends_early_cancels_its_call(setup: Setup, event: Callable[[Rig], None]) -> None:
    async with running() as rig:
        await setup(rig)
        event(rig)
        assert rig.link().calls[0].is_cancelled


# Decisions after a failure


class UnusedLink(ScriptedLink):
    def __init__(self) -> None:
        """A decision sends nothing, and needs no event loop."""


def served_by(*names: str, protocol: str = "openai") -> tuple[ServedModel, list[Endpoint]]:
    served = ServedModel(ModelRoute(model="m", replicas=()))
    metrics = GatewayMetrics(MetricRegistry())
    served.endpoints = [
        Endpoint(
            replica(name, protocol=protocol),
            default_limit=1,
            link=UnusedLink(),
            driven=protocol != "openai",
            metrics=metrics.of("m", name),
            node_head=b"",
            served=served,
        )
        for name in names
    ]
    return served, served.endpoints


@pytest.mark.parametrize(
    ("replicas", "failed", "count", "unreachable", "step"),
    [
        ("ab", "", 0, False, Step.RETRY),
        ("ab", "a", 1, False, Step.RETRY),
        ("ab", "a", 1, True, Step.RETRY),
        ("ab", "ab", 2, False, Step.GIVE_UP),
        ("ab", "ab", 2, True, Step.WAIT),
        ("a", "a", 1, False, Step.PROBE),
        ("a", "a", 1, True, Step.WAIT),
        ("a", "a", 2, False, Step.GIVE_UP),
        ("a", "", 1, True, Step.RETRY),  # it waited in the queue, and has its turn
        ("ab", "a", ATTEMPTS_MAX, False, Step.GIVE_UP),
        ("ab", "a", ATTEMPTS_MAX, True, Step.GIVE_UP),
        ("ab", "a", ATTEMPTS_MAX - 1, True, Step.RETRY),
    ],
)
def test_the_next_step_after_failures(replicas: str, failed: str, count: int, unreachable: bool, step: Step) -> None:
    served, endpoints = served_by(*replicas)
    failures = Failures()
    failures.excluded = tuple(one for one, name in zip(endpoints, replicas, strict=True) if name in failed)
    failures.count, failures.unreachable = count, unreachable
    assert next_step(failures, served) is step


@pytest.mark.parametrize(
    ("status", "path", "replicas", "protocol", "verdict"),
    [
        (400, b"/v1/chat/completions", "a", "openai", Verdict.RELAY),
        (401, b"/v1/chat/completions", "a", "openai", Verdict.WRONG_PROCESS),
        (403, b"/v1/chat/completions", "ab", "openai", Verdict.WRONG_PROCESS),
        (401, b"/v1/chat/completions", "a", "grpc", Verdict.RELAY),
        (429, b"/v1/chat/completions", "ab", "openai", Verdict.RELAY),
        (500, b"/v1/chat/completions", "ab", "openai", Verdict.RELAY),
        (502, b"/v1/chat/completions", "ab", "openai", Verdict.RETRY),
        (503, b"/v1/chat/completions", "ab", "openai", Verdict.RETRY),
        (503, b"/v1/chat/completions", "a", "openai", Verdict.RELAY),
        (501, b"/v1/embeddings", "a", "openai", Verdict.NO_EMBEDDINGS),
        (501, b"/v1/rerank", "a", "openai", Verdict.HOLD),
        (404, b"/v1/rerank", "a", "openai", Verdict.HOLD),
        (405, b"/v1/rerank", "a", "openai", Verdict.HOLD),
        (404, b"/v1/rerank", "a", "grpc", Verdict.RELAY),
    ],
)
def test_what_a_replicas_error_means(status: int, path: bytes, replicas: str, protocol: str, verdict: Verdict) -> None:
    served, endpoints = served_by(*replicas, protocol=protocol)
    assert judge_error(status, path, endpoints[0], served, ()) is verdict


def test_the_latest_failure_is_named_to_the_client() -> None:
    _, endpoints = served_by("a", "b")
    failures = Failures()
    failures.add(endpoints[0], "it closed the connection", unreachable=False)
    assert (failures.error("m").status, failures.error("m").code) == (502, "replica_failed")
    failures.add(endpoints[1], "connection refused", unreachable=True)
    assert (failures.error("m").status, failures.error("m").code) == (503, "replica_unreachable")
    assert "the replica on node 'node-b' failed: connection refused" in str(failures.error("m"))
    assert failures.excluded == tuple(endpoints)


def test_positions_of_plain_records_are_those_of_their_named_form() -> None:
    positions = {"endpoint": ENDPOINT, "status": STATUS, "key_id": KEY_ID, "began_s": BEGAN_S}
    positions |= {"first_byte_s": FIRST_BYTE_S, "ended_s": ENDED_S}
    assert {name: RequestRecord._fields.index(name) for name in positions} == positions
    assert Pick._fields[0] == "chosen"
