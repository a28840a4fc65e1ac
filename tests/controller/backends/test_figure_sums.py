"""Figures of long times: minutes that nobody writes any more are read once."""

from collections.abc import Collection

import pytest

from corral.controller.backends.figure_sums import KEPT, FigureSums
from corral.core.backends.serving_figures import ServingFigures, VersionKey
from corral.core.errors import Unavailable
from corral.store.backends.version_exits import MINUTE_MS
from corral.store.serving.version_figures import VersionRow
from corral.store.stores import Stores
from harness.databases import Rig

OLD, NEW = "sha256:old", "sha256:new"
KEY = VersionKey("tiny", "n", OLD)


class Counted:
    """A store that notes which minutes it was asked for, counted from the first one."""

    def __init__(self, stores: Stores, zero_ms: int) -> None:
        self._stores, self._zero = stores, zero_ms // MINUTE_MS
        self.asked: list[tuple[int, int | None]] = []
        self.is_broken = False

    async def read(self, *, digests: Collection[str], since_ms: int, until_ms: int | None = None) -> list[VersionRow]:
        if self.is_broken:
            raise Unavailable("the store does not answer")
        last = None if until_ms is None else until_ms // MINUTE_MS - self._zero
        self.asked.append((since_ms // MINUTE_MS - self._zero, last))
        return await self._stores.version_figures.read(digests=digests, since_ms=since_ms, until_ms=until_ms)


async def serve(stores: Stores, requests: int) -> None:
    batch = await stores.rollouts.now_ms()
    await stores.version_figures.add("fe", batch, {KEY: ServingFigures(requests=requests)})


def count(rows: list[VersionRow]) -> int:
    return sum(row.figures.requests for row in rows)


async def test_minutes_that_nobody_writes_any_more_are_read_once(stores: Stores, rig: Rig) -> None:
    began_ms = await stores.rollouts.now_ms()
    counted = Counted(stores, began_ms)
    sums = FigureSums(counted)
    for minute in range(10):
        await serve(stores, 2**minute)
        rows = await sums.read([OLD], since_ms=began_ms, now_ms=await stores.rollouts.now_ms())
        assert count(rows) == 2 ** (minute + 1) - 1
        await rig.advance(60)
    await serve(stores, 1 << 20)
    counted.asked.clear()
    for _ in range(2):
        rows = await sums.read([OLD], since_ms=began_ms, now_ms=await stores.rollouts.now_ms())
        assert count(rows) == (1 << 20) + 1023
    assert counted.asked == [(7, 8), (8, None), (8, None)]


async def test_a_time_that_has_passed_is_read_once_at_all(stores: Stores, rig: Rig) -> None:
    zero_ms = await stores.rollouts.now_ms()
    await serve(stores, 5)
    await rig.advance(3600)
    await serve(stores, 7)
    counted = Counted(stores, zero_ms)
    sums = FigureSums(counted)
    for _ in range(2):
        rows = await sums.read([OLD, NEW], since_ms=zero_ms, until_ms=zero_ms + 1_800_000, now_ms=zero_ms + 3_600_000)
        assert count(rows) == 5
    assert counted.asked == [(0, 30), (0, 30)], "once for each version"


async def test_what_was_read_survives_a_store_that_does_not_answer(stores: Stores, rig: Rig) -> None:
    zero_ms = await stores.rollouts.now_ms()
    await serve(stores, 5)
    await rig.advance(3600)
    now_ms = await stores.rollouts.now_ms()
    counted = Counted(stores, zero_ms)
    sums = FigureSums(counted)
    await sums.read([OLD], since_ms=zero_ms, now_ms=now_ms)
    counted.is_broken = True
    with pytest.raises(Unavailable):
        await sums.read([OLD], since_ms=zero_ms, now_ms=now_ms)
    counted.is_broken = False
    counted.asked.clear()
    assert count(await sums.read([OLD], since_ms=zero_ms, now_ms=now_ms)) == 5
    assert counted.asked == [(58, None)]


async def test_sums_of_rollouts_that_ended_are_forgotten(stores: Stores) -> None:
    now_ms = await stores.rollouts.now_ms()
    sums = FigureSums(stores.version_figures)
    for number in range(KEPT + 5):
        await sums.read([OLD], since_ms=now_ms - number * MINUTE_MS, now_ms=now_ms)
    assert len(sums._sums) == KEPT
