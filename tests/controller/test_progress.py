"""Progress of nodes: what one node sends stops no other's."""

from collections.abc import Iterable

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import InstallProgress, ProgressExtras, encode
from corral.bus.subjects import progress_subject
from corral.controller.progress import OPERATIONS_MOST, LiveProgress
from corral.controller.refused import RefusedMessages
from corral.core.errors import InvalidInput
from corral.core.nodes import NodeId
from corral.core.operations import NodeProgress
from corral.store.stores import Stores
from corral.system import SystemClock
from corral.telemetry.metrics import Registry


class Link:
    def __init__(self) -> None:
        self.hear: Handler

    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None:
        self.hear = handler


class Picky:
    def __init__(self) -> None:
        self.saved: list[str] = []

    async def save_progress(self, progress: Iterable[tuple[str, NodeProgress]]) -> None:
        batch = [node.node_id for _, node in progress]
        if "evil" in batch:
            raise InvalidInput("a value does not fit into the store")
        self.saved += batch


def message(node: str, operation: str = "op", sequence: int = 1) -> BusMessage:
    news = InstallProgress(
        op_id=operation,
        node_id=node,
        backend="b",
        percentage=1.0,
        corral=ProgressExtras(sequence=sequence, phase="downloading", bytes_done=1),
    )
    return BusMessage(progress_subject(node, operation), encode(news))


def counted(registry: Registry) -> dict[str, float]:
    return {labels: value for _, _, _, samples in registry.collect() for _, labels, value in samples}


async def test_progress_that_cannot_be_read_or_stored_is_dropped_alone(stores: Stores) -> None:
    link, store, registry = Link(), Picky(), Registry()
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
    refused = RefusedMessages(stores.nodes, SystemClock(), Registry())
    live = LiveProgress(bus=link, store=Picky(), refused=refused, clock=SystemClock())
    await live.start()
    for number in range(OPERATIONS_MOST + 50):
        await link.hear(message("n", f"op-{number}"))
    assert not live.of("op-0")
    assert live.of(f"op-{OPERATIONS_MOST + 49}")
