"""Heartbeats in batches: every one is answered, also by a frontend that stops."""

import asyncio
from collections.abc import Sequence

import pytest

from corral.core.errors import InvalidInput, OutcomeUnknown, Unavailable
from corral.core.nodes.node import NodeId, NodeUsage
from corral.frontend.nodes.heartbeats import HeartbeatBatcher
from corral.store.nodes.registration import Heartbeat, HeartbeatOutcome, RegistrationStore

HEARTBEAT = Heartbeat(node_id=NodeId("n"), usage=NodeUsage())


class Store(RegistrationStore):
    """Writes when the test allows it."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.writing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.batches: list[int] = []

    async def record_heartbeats(self, heartbeats: Sequence[Heartbeat]) -> list[HeartbeatOutcome]:
        self.batches.append(len(heartbeats))
        self.writing.set()
        await self.go_on.wait()
        if self.problem is not None:
            raise self.problem
        return [HeartbeatOutcome(None) for _ in heartbeats]


async def test_heartbeats_collect_while_a_batch_is_written() -> None:
    store = Store()
    batcher = HeartbeatBatcher(store)
    running = asyncio.create_task(batcher.run())
    first = asyncio.create_task(batcher.write(HEARTBEAT))
    await store.writing.wait()
    others = [asyncio.create_task(batcher.write(HEARTBEAT)) for _ in range(5)]
    await asyncio.sleep(0)
    store.go_on.set()
    async with asyncio.timeout(30):
        await asyncio.gather(first, *others)
    assert store.batches == [1, 5]
    running.cancel()


async def test_a_stop_in_the_middle_of_a_batch_leaves_nobody_waiting() -> None:
    store = Store()
    batcher = HeartbeatBatcher(store)
    running = asyncio.create_task(batcher.run())
    writing = asyncio.create_task(batcher.write(HEARTBEAT))
    await store.writing.wait()
    running.cancel()
    with pytest.raises(OutcomeUnknown, match="stopped"):
        async with asyncio.timeout(30):
            await writing
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    ("problem", "answer"), [(Unavailable("unreachable"), Unavailable), (RuntimeError("ours"), OutcomeUnknown)]
)
async def test_every_error_is_answered(problem: Exception, answer: type[Exception]) -> None:
    store = Store(problem)
    store.go_on.set()
    batcher = HeartbeatBatcher(store)
    running = asyncio.create_task(batcher.run())
    with pytest.raises(answer):
        async with asyncio.timeout(30):
            await batcher.write(HEARTBEAT)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Picky(Store):
    """Rejects every batch that contains this node."""

    async def record_heartbeats(self, heartbeats: Sequence[Heartbeat]) -> list[HeartbeatOutcome]:
        outcomes = await super().record_heartbeats(heartbeats)
        if any(heartbeat.node_id == "evil" for heartbeat in heartbeats):
            raise InvalidInput("a value does not fit into the store")
        return outcomes


async def test_a_heartbeat_that_the_store_rejects_fails_no_other() -> None:
    store = Picky()
    batcher = HeartbeatBatcher(store)
    good = [asyncio.create_task(batcher.write(HEARTBEAT)) for _ in range(3)]
    evil = asyncio.create_task(batcher.write(Heartbeat(node_id=NodeId("evil"), usage=NodeUsage())))
    await asyncio.sleep(0)
    running = asyncio.create_task(batcher.run())
    store.go_on.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*good)
        with pytest.raises(InvalidInput):
            await evil
    assert store.batches == [4, 1, 1, 1, 1]
    running.cancel()
