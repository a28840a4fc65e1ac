"""What is set aside is not looked at again until the process has grown."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from corral.system.gc_pauses import GROWN_BYTES, collect_in_small_steps
from harness.waiting import until


class Ring:
    def __init__(self) -> None:
        self.own: Ring | None = self


@pytest.fixture(autouse=True)
def usual_collecting() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


async def test_new_garbage_goes_soon_and_old_when_memory_has_grown() -> None:
    memory, looks = 0, 0

    def memory_bytes() -> int:
        nonlocal looks
        looks += 1
        return memory

    kept = Ring()
    old = weakref.ref(kept)
    collecting = asyncio.create_task(collect_in_small_steps(every_s=0.001, memory_bytes=memory_bytes))
    try:
        await until(lambda: looks >= 2, "the first look")
        new = weakref.ref(Ring())
        await until(lambda: new() is None, "new garbage goes")
        del kept
        enough = looks + 5
        await until(lambda: looks >= enough, "more looks")
        assert old() is not None, "it was set aside"
        memory = GROWN_BYTES
        await until(lambda: old() is None, "old garbage goes")
    finally:
        collecting.cancel()
