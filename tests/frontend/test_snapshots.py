"""Readers share one read, whether it succeeds or fails."""

import asyncio

import pytest

from corral.core.errors import Unavailable
from corral.frontend.snapshots import Snapshot
from harness.clocks import HeldClock


class Store:
    """Answers when the test allows it."""

    def __init__(self) -> None:
        self.reads = 0
        self.failing = False
        self.go_on = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        number = self.reads
        await self.go_on.wait()
        if self.failing:
            raise Unavailable("the store does not answer")
        return number


async def test_readers_share_one_error_which_is_kept_for_a_while() -> None:
    store, clock = Store(), HeldClock()
    store.failing = True
    snapshot = Snapshot(store.read, clock=clock, every_s=1.0)
    waiting = [asyncio.create_task(snapshot.get()) for _ in range(50)]
    await asyncio.sleep(0)
    clock.now_s += 5.0
    store.go_on.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unavailable}
    with pytest.raises(Unavailable):
        await snapshot.get()
    assert store.reads == 1
    clock.now_s += 1.0
    store.failing = False
    assert await snapshot.get() == 2


async def test_a_value_is_kept_until_it_is_old_or_changed() -> None:
    store, clock = Store(), HeldClock()
    store.go_on.set()
    snapshot = Snapshot(store.read, clock=clock, every_s=1.0)
    assert [await snapshot.get(), await snapshot.get()] == [1, 1]
    clock.now_s += 1.0
    assert await snapshot.get() == 2
    snapshot.forget()
    assert await snapshot.get() == 3


async def test_a_cancelled_reader_does_not_cancel_the_read() -> None:
    store = Store()
    snapshot = Snapshot(store.read, clock=HeldClock(), every_s=1.0)
    first, second = (asyncio.create_task(snapshot.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    store.go_on.set()
    assert (await second, store.reads) == (1, 1)


async def test_a_value_read_before_a_change_is_not_kept() -> None:
    store = Store()
    snapshot = Snapshot(store.read, clock=HeldClock(), every_s=1.0)
    before = asyncio.create_task(snapshot.get())
    await asyncio.sleep(0.01)
    snapshot.forget()
    after = asyncio.create_task(snapshot.get())
    store.go_on.set()
    assert (await before, await after, await snapshot.get()) == (1, 2, 2)
