"""Progress of nodes: what one node sends stops no other's."""

import asyncio
from collections.abc import Iterable
from functools import partial

import pytest

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import InstallProgress, ProgressExtras, encode
from corral.bus.subjects import progress_subject
from corral.controller.backends.progress import OPERATIONS_MOST, LiveProgress, publish_progress
from corral.controller.loop import Reconciler
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.core.backends.operations import NodeProgress, NodeProgressStatus
from corral.core.backends.progress import overlay
from corral.core.errors import InvalidInput
from corral.core.nodes.node import NodeId
from corral.core.transfer import TransferProgress
from corral.store.stores import Stores
from corral.system import SystemClock
from corral.telemetry.metrics import MetricRegistry
from harness.reconcile import make_runtime
from harness.waiting import wait_until_async


class Link:
    def __init__(self) -> None:
        self.hear: Handler

    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None:
        self.hear = handler

    async def publish(self, subject: str, data: bytes) -> None:
        await self.hear(BusMessage(subject, data))


class Kept:
    """As the store keeps it: never over something newer."""

    def __init__(self) -> None:
        self.node = NodeProgress(node_id=NodeId("a"), node_name="a", status=NodeProgressStatus.DOWNLOADING)

    async def save_progress(self, progress: Iterable[tuple[str, NodeProgress]]) -> None:
        for _, node in progress:
            if node.sequence > self.node.sequence:
                self.node = node

    async def has(self, phase: str) -> bool:
        return self.node.transfer.phase == phase


class Picky:
    def __init__(self) -> None:
        self.saved: list[str] = []

    async def save_progress(self, progress: Iterable[tuple[str, NodeProgress]]) -> None:
        batch = [node.node_id for _, node in progress]
        if "evil" in batch:
            raise InvalidInput("a value does not fit into the store")
        self.saved += batch


def message(node: str, operation: str = "op", sequence: int = 1, *, last: bool = False) -> BusMessage:
    news = InstallProgress(
        op_id=operation,
        node_id=node,
        backend="b",
        percentage=1.0,
        corral=ProgressExtras(
            sequence=sequence, transfer=TransferProgress(phase="downloading", percentage=1.0, bytes_done=1), last=last
        ),
    )
    return BusMessage(progress_subject(node, operation), encode(news))


def counted(registry: MetricRegistry) -> dict[str, float]:
    return {labels: value for _, _, _, samples in registry.collect() for _, labels, value in samples}


async def test_progress_that_cannot_be_read_or_stored_is_dropped_alone(stores: Stores) -> None:
    link, store, registry = Link(), Picky(), MetricRegistry()
    refused = RefusedMessages(stores.nodes, SystemClock(), registry)
    live = LiveProgress(bus=link, store=store, refused=refused, clock=SystemClock())
    await live.start()
    for node in ("a", "evil", "z"):
        live.follow("op", NodeId(node))
        await link.hear(message(node))
    await link.hear(BusMessage(progress_subject("broken", "op"), b"[" * 100_000))
    await link.hear(BusMessage(progress_subject("a", "op"), message("z").data))
    await live.save()
    assert sorted(store.saved) == ["a", "z"]
    assert counted(registry) == {f'node="{node}",kind="progress"': 1 for node in ("broken", "a", "evil")}


async def test_progress_of_endless_operations_is_bounded(stores: Stores) -> None:
    link = Link()
    refused = RefusedMessages(stores.nodes, SystemClock(), MetricRegistry())
    live = LiveProgress(bus=link, store=Picky(), refused=refused, clock=SystemClock())
    await live.start()
    for number in range(OPERATIONS_MOST + 50):
        await link.hear(message("n", f"op-{number}"))
    assert not live.of("op-0")
    assert live.of(f"op-{OPERATIONS_MOST + 49}")


@pytest.mark.parametrize("pause", [False, True], ids=["at-once", "after-a-pause"])
async def test_the_phase_of_a_rollout_is_shown_after_the_workers_run_has_ended(stores: Stores, pause: bool) -> None:
    """Whether the first frontend's word comes before or after the end of the run is cleared away."""
    link, store = Link(), Kept()
    refused = RefusedMessages(stores.nodes, SystemClock(), MetricRegistry())
    live = LiveProgress(bus=link, store=store, refused=refused, clock=SystemClock())
    await live.start()
    node = NodeId("a")
    live.follow("op", node)
    for sequence in range(1, 13):
        await link.hear(message("a", sequence=sequence, last=sequence == 12))
    await live.save()
    assert store.node.sequence == 12
    saving = Reconciler("progress", live.reconcile, make_runtime(stores), every_s=0.02)
    running = asyncio.create_task(saving.run())

    async def is_cleared() -> bool:
        return live.of("op").get(node) is None

    if pause:
        await wait_until_async(is_cleared, what="the run is cleared away")
    for phase in ("starting the new version", "waiting for open requests"):
        await publish_progress(link, SystemClock(), "op", node, phase)
        assert overlay(store.node, live.of("op").get(node)).transfer.phase == phase
        await wait_until_async(partial(store.has, phase), what="it is written")
        await asyncio.sleep(0.1)
        assert overlay(store.node, live.of("op").get(node)).transfer.phase == phase, "and stays"
    running.cancel()


async def test_a_new_run_of_the_worker_is_shown_though_its_first_message_was_lost(stores: Stores) -> None:
    link = Link()
    refused = RefusedMessages(stores.nodes, SystemClock(), MetricRegistry())
    live = LiveProgress(bus=link, store=Kept(), refused=refused, clock=SystemClock())
    await live.start()
    await publish_progress(link, SystemClock(), "op", NodeId("a"), "starting the new version")
    await link.hear(message("a", sequence=2))
    assert live.of("op")[NodeId("a")].transfer.phase == "downloading"
    assert live.of("op")[NodeId("a")].transfer.percentage == 1.0
