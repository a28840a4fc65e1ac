"""Reports of nodes on a real bus, written to both databases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from corral.bus.client import Bus
from corral.bus.messages import (
    ListedBackend,
    ListReply,
    ModelsRunningReply,
    NodeReport,
    ReportedProcess,
    RunningModel,
    encode,
)
from corral.bus.subjects import BACKEND_LIST, MODELS_RUNNING, REPORT, REPORT_NOW, node_subject
from corral.controller.nodes.localai_reports import GalleryNames
from corral.controller.nodes.refused_messages import SENDERS_MOST, RefusedMessages
from corral.controller.nodes.reports import Reports, RequestLocalAiReport
from corral.core.errors import InvalidInput, NoResponders
from corral.core.nodes.node import NodeClaim, NodeId, NodeType
from corral.core.nodes.observed import Observation, ProcessStatus
from corral.core.replicas.replica import Replica, ReplicaState
from corral.store.backends.observed import ObservedStore, RecordedReports
from corral.store.engine.database import Tx
from corral.store.nodes.registration import Registered
from corral.store.serving.replica_rows import insert_replica
from corral.store.stores import Stores
from corral.system import SystemClock
from corral.telemetry.metrics import MetricRegistry
from harness.localai_reporter import make_reporter
from harness.reconcile import make_runtime
from harness.waiting import until

NODE = "node-1"
Connect = Callable[..., "asyncio.Future[Bus]"]


def report(sequence: int, *backends: str, epoch: int = 1, **fields: Any) -> NodeReport:
    listed = [ListedBackend(name=name, is_system=False, is_meta=False, digest=f"sha256:{name}") for name in backends]
    return NodeReport(node=NODE, instance="i", epoch=epoch, sequence=sequence, backends=listed, processes=[], **fields)


class Heard:
    """What listeners were told."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[NodeReport] = asyncio.Queue()

    async def __call__(self, news: NodeReport) -> None:
        self.reports.put_nowait(news)

    async def next(self) -> NodeReport:
        async with asyncio.timeout(30):
            return await self.reports.get()


@asynccontextmanager
async def taking_in(
    stores: Stores,
    bus: Bus,
    registry: MetricRegistry | None = None,
    *,
    request_localai_report: RequestLocalAiReport | None = None,
) -> AsyncIterator[tuple[Reports, Heard]]:
    refused = RefusedMessages(stores.nodes, SystemClock(), registry or MetricRegistry())
    reports = Reports(
        make_runtime(stores),
        bus=bus,
        observed=stores.observed,
        nodes=stores.nodes,
        refused=refused,
        clock=SystemClock(),
        request_localai_report=request_localai_report,
    )
    heard = Heard()
    reports.listen(heard)
    await reports.start()
    running = asyncio.ensure_future(reports.run())
    try:
        yield reports, heard
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def names(stores: Stores) -> list[str]:
    return [backend.name for backend in (await stores.observed.read_backends()).get(NodeId(NODE), [])]


async def test_a_report_is_written_and_a_stale_one_is_dropped(stores: Stores, connect: Connect) -> None:
    bus, node = await connect("fe"), await connect("node")
    async with taking_in(stores, bus) as (_, heard):
        for news in (report(5, "a", "b"), report(4, "old"), report(6, "b"), report(1, "c", epoch=2)):
            await node.publish(node_subject(NODE, REPORT), encode(news))
        last = await heard.next()
        while last.epoch < 2:
            last = await heard.next()
        assert await names(stores) == ["c"]
        await node.publish(node_subject(NODE, REPORT), encode(report(9, "a")), confirmed=True)
        await node.publish(node_subject(NODE, REPORT), encode(report(2, "c", "d", epoch=2)))
        assert [backend.name for backend in (await heard.next()).backends] == ["c", "d"]
        assert await names(stores) == ["c", "d"]


async def test_a_backend_told_twice_stops_no_report(stores: Stores, connect: Connect) -> None:
    bus, node = await connect("fe"), await connect("node")
    async with taking_in(stores, bus) as (_, heard):
        await node.publish(node_subject(NODE, REPORT), encode(report(1, "a", "a", "b")))
        await heard.next()
        assert await names(stores) == ["a", "b"]


async def test_a_frontend_that_restarts_does_not_go_back(stores: Stores, connect: Connect) -> None:
    bus, node = await connect("fe"), await connect("node")
    async with taking_in(stores, bus) as (_, heard):
        await node.publish(node_subject(NODE, REPORT), encode(report(5, "a")))
        await heard.next()
    other = await connect("fe2")
    async with taking_in(stores, other) as (_, heard):
        await node.publish(node_subject(NODE, REPORT), encode(report(4, "stale")))
        await heard.next()
        assert await names(stores) == ["a"]


async def test_a_node_that_is_asked_answers_with_its_tokens_and_they_are_not_stored(
    stores: Stores, connect: Connect
) -> None:
    bus, node = await connect("fe"), await connect("node")

    async def answer(_: object) -> bytes:
        return encode(report(1, "a", http_token="secret-http-token"))

    await node.serve(node_subject(NODE, REPORT_NOW), answer, concurrency=1)
    async with taking_in(stores, bus) as (reports, _):
        assert (await reports.request_report(NODE)).http_token == "secret-http-token"
        assert await names(stores) == ["a"], "it is written when ask returns"


async def register_go(stores: Stores) -> None:
    """A LocalAI worker, which has no key."""
    claim = NodeClaim(name="go", node_type=NodeType.BACKEND, address="a:1", http_address="a:2")
    await stores.registration.register(claim, new_id=NODE, may_join=True, auto_approve=True)


PIPER = GalleryNames(aliases={"cpu-piper": "piper"})


async def add_replica(stores: Stores, slot: int, address: str, epoch: int = 1) -> None:
    row = Replica(
        id=f"r{slot}",
        node_id=NODE,
        model="m",
        slot=slot,
        revision="1",
        state=ReplicaState.READY,
        address=address,
        process_key=f"m#{slot}",
        epoch=epoch,
    )

    async def body(tx: Tx) -> None:
        await insert_replica(tx, row)

    await stores.database.write(body)


async def listed(_: object) -> bytes:
    return encode(ListReply(backends=[ListedBackend(name="cpu-piper", is_system=False, is_meta=False)]))


async def test_a_localai_worker_is_asked_for_what_it_can_report(stores: Stores, connect: Connect) -> None:
    await register_go(stores)
    bus, node = await connect("fe"), await connect("node")

    async def running(_: object) -> bytes:
        return encode(ModelsRunningReply(models=[RunningModel(model_id="m", replica_index=1)]))

    await node.serve(node_subject(NODE, BACKEND_LIST), listed, concurrency=1)
    await node.serve(node_subject(NODE, MODELS_RUNNING), running, concurrency=1)
    async with taking_in(
        stores, bus, request_localai_report=make_reporter(stores, bus, names=PIPER).request_report
    ) as (reports, _):
        told = await reports.request_report(NODE)
        assert told.processes == [
            ReportedProcess("m#1", "m", 1, backend="", digest="", protocol="localai-grpc", state=ProcessStatus.READY)
        ]
        assert told.epoch == 1, "that of the node, so that its table counts"
        assert await names(stores) == ["cpu-piper", "piper"]


async def test_the_processes_of_an_old_localai_worker_are_those_of_our_replicas_that_somebody_listens_for(
    stores: Stores, connect: Connect
) -> None:
    await register_go(stores)
    bus, node = await connect("fe"), await connect("node")
    for slot, address in enumerate(("a:1", "a:2")):
        await add_replica(stores, slot, address)
    await add_replica(stores, 2, "a:3", epoch=0)  # of an earlier run of the worker: another process has its port
    await node.serve(node_subject(NODE, BACKEND_LIST), listed, concurrency=1)
    told = await make_reporter(stores, bus, gone=["a:2"]).request_report(NODE)
    assert told is not None
    assert [process.process_key for process in told.processes] == ["m#0"]


async def test_a_node_that_is_not_there_is_told_apart_from_one_that_knows_no_reports(
    stores: Stores, connect: Connect
) -> None:
    async with taking_in(stores, await connect("fe")) as (reports, _):
        with pytest.raises(NoResponders):
            await reports.request_report(NODE)


OTHER = "node-2"


def _poison(text: bytes, by: bytes) -> bytes:
    return encode(report(1, "a")).replace(text, by)


POISONS = {
    "epoch": _poison(b'"epoch":1', b'"epoch":9223372036854775808'),
    "sequence": _poison(b'"sequence":1', b'"sequence":' + b"9" * 40),
    "nul": _poison(b'"sha256:a"', b'"sha\\u0000a"'),
    "depth": _poison(b'"processes":[]', b'"processes":[],"x":' + b"[" * 100_000),
    "no json": b"\xff\xfe",
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
async def test_a_report_that_cannot_be_read_stops_no_other_and_is_counted(
    stores: Stores, connect: Connect, poison: bytes
) -> None:
    bus, node, registry = await connect("fe"), await connect("node"), MetricRegistry()

    def counted() -> bool:
        ((_, _, _, samples),) = registry.collect()
        return samples == [("corral_messages_refused_total", f'node="{OTHER}",kind="report"', 3)]

    async with taking_in(stores, bus, registry) as (_, heard):
        for _ in range(3):
            await node.publish(node_subject(OTHER, REPORT), poison)
        await node.publish(node_subject(NODE, REPORT), encode(report(1, "a")))
        assert (await heard.next()).node == NODE
        assert await names(stores) == ["a"]
        await until(counted, "they are counted against their sender")


class Picky(ObservedStore):
    """A store that refuses whatever has this node among it, as it does what its columns cannot hold."""

    def __init__(self, stores: Stores, poisoned: str) -> None:
        super().__init__(stores.database)
        self._poisoned = poisoned
        self.tried: list[int] = []

    async def record(self, observations: Sequence[Observation]) -> RecordedReports:
        self.tried.append(len(observations))
        if any(observation.node_id == self._poisoned for observation in observations):
            raise InvalidInput("a value does not fit into the store")
        return await super().record(observations)


async def test_a_report_the_store_refuses_is_dropped_alone_and_never_put_back(stores: Stores, connect: Connect) -> None:
    bus, node = await connect("fe"), await connect("node")
    clock, registry = SystemClock(), MetricRegistry()
    refused = RefusedMessages(stores.nodes, clock, registry)
    picky = Picky(stores, OTHER)
    reports = Reports(make_runtime(stores), bus=bus, observed=picky, nodes=stores.nodes, refused=refused, clock=clock)
    heard = Heard()
    reports.listen(heard)

    async def answer(_: object) -> bytes:
        return encode(msgspec.structs.replace(report(7, "x"), node=OTHER))

    await node.serve(node_subject(OTHER, REPORT_NOW), answer, concurrency=1)
    await reports.start()
    await node.publish(node_subject(OTHER, REPORT), encode(msgspec.structs.replace(report(1, "a"), node=OTHER)))
    await node.publish(node_subject(NODE, REPORT), encode(report(1, "a")), confirmed=True)
    await bus.confirm()
    running = asyncio.ensure_future(reports.run())
    try:
        assert (await heard.next()).node == NODE
        assert await names(stores) == ["a"]
        with pytest.raises(InvalidInput, match="does not fit"):
            await reports.request_report(OTHER)
        await node.publish(node_subject(NODE, REPORT), encode(report(2, "b")))
        assert (await heard.next()).sequence == 2
        assert picky.tried == [2, 1, 1, 1, 1], "nothing is tried again"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    ((_, _, _, samples),) = registry.collect()
    assert samples == [("corral_messages_refused_total", f'node="{OTHER}",kind="report"', 2)]


async def test_a_machine_is_marked_with_what_it_sent(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    registered = await stores.registration.register(
        NodeClaim(name="evil", node_type=NodeType.BACKEND, address="a:1", http_address="a:2"),
        new_id="node-evil",
        may_join=True,
        auto_approve=True,
    )
    assert isinstance(registered, Registered)
    refused = RefusedMessages(stores.nodes, SystemClock(), MetricRegistry())
    for number in range(5000):
        refused.note("node-evil", "report", InvalidInput(f"bad {number}"))
    refused.note("nobody", "report", InvalidInput("bad"))
    await refused.save()
    node = await stores.nodes.read_one("node-evil")
    assert (node.refused_count, node.refused_reason) == (5000, "report: bad 4999")
    assert capsys.readouterr().out.count("message.refused") <= 2, "one line per node and minute"


async def test_strangers_take_no_nodes_place_in_the_count(stores: Stores) -> None:
    registered = await stores.registration.register(
        NodeClaim(name="late", node_type=NodeType.BACKEND, address="a:1", http_address="a:2"),
        new_id="node-late",
        may_join=True,
        auto_approve=True,
    )
    assert isinstance(registered, Registered)
    registry = MetricRegistry()
    refused = RefusedMessages(stores.nodes, SystemClock(), registry)
    for number in range(2 * SENDERS_MOST):
        refused.note(f"made-up-{number}", "report", InvalidInput("bad"))
    await refused.save()
    refused.note("node-late", "report", InvalidInput("bad"))
    await refused.save()
    assert (await stores.nodes.read_one("node-late")).refused_count == 1
    ((_, _, _, samples),) = registry.collect()
    assert [labels for _, labels, _ in samples] == ['node="others",kind="report"', 'node="node-late",kind="report"']
