"""Audit retention: the log stays within its limits, whichever frontends trim it."""

import asyncio

from corral.controller.nodes.audit_retention import ROWS_AT_ONCE, AuditRetention
from corral.store.access.audit_events import AuditEventStore
from corral.store.stores import Stores
from harness.databases import Rig
from harness.reconcile import make_runtime
from harness.waiting import wait_until_async


async def test_two_frontends_trim_the_same_log_to_its_limit(rig: Rig, stores: Stores) -> None:
    for number in range(40):
        await stores.events.append(actor="ann", action="test", subject=str(number))
    other = Stores(await rig.open())
    running = [
        asyncio.create_task(AuditRetention(make_runtime(view, name), view.events, keep_s=3600, most=10).loop.run())
        for name, view in (("a", stores), ("b", other))
    ]

    async def trimmed() -> bool:
        return len(await stores.events.read_latest(limit=100)) == 10

    try:
        await wait_until_async(trimmed, what="only the newest entries are left")
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class CountedEvents(AuditEventStore):
    """An audit log that has a little more than two batches too many."""

    def __init__(self) -> None:
        self.left = 2 * ROWS_AT_ONCE + 1
        self.trims = 0

    async def trim(self, *, keep_s: float, most: int, at_once: int) -> int:
        self.trims += 1
        gone = min(self.left, at_once)
        self.left -= gone
        return gone


async def test_a_log_far_above_its_limit_is_trimmed_batch_after_batch(stores: Stores) -> None:
    events = CountedEvents()
    retention = AuditRetention(make_runtime(stores), events, keep_s=3600, most=10)
    running = asyncio.create_task(retention.loop.run())

    async def done() -> bool:
        return events.left == 0

    try:
        await wait_until_async(done, what="all batches are trimmed, not one every ten minutes")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert events.trims == 3
