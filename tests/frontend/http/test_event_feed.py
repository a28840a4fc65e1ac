"""The live feed: what a page receives, how often, and what it gets when it reconnects."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from corral.core.errors import InvalidInput, Unavailable
from corral.frontend.http.event_feed import MIN_INTERVAL_S, READ_EVERY_S, Change, Changes, Kind, LiveFeed


@dataclass
class Table:
    """Rows with the time of their last change, as a store has them. Its clock counts reads and writes."""

    name: str
    now_ms: int = 1_000_000
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    broken: bool = False
    reads: int = 0
    is_whole: bool = False
    read_every_s: float = READ_EVERY_S
    min_interval_s: float = MIN_INTERVAL_S

    def put(self, key: str, value: int) -> None:
        self.now_ms += 1
        self.rows[key] = (self.now_ms, value)

    def remove(self, key: str) -> None:
        self.now_ms += 1
        del self.rows[key]
        self.gone[key] = self.now_ms

    async def read_since(self, since_ms: int) -> Changes:
        self.reads += 1
        if self.broken:
            raise Unavailable("the store does not answer")
        changed = [
            Change(key, at, {"key": key, "value": value}) for key, (at, value) in self.rows.items() if at >= since_ms
        ]
        removed = [key for key, at in self.gone.items() if at >= since_ms]
        return Changes(now_ms=self.now_ms, changed=changed, removed=removed)

    async def read_whole(self, _since_ms: int) -> Changes:
        found = await self.read_since(0)
        return Changes(now_ms=found.now_ms, changed=found.changed)

    def kind(self) -> Kind:
        read = self.read_whole if self.is_whole else self.read_since
        return Kind(
            name=self.name,
            read_since=read,
            is_whole=self.is_whole,
            read_every_s=self.read_every_s,
            min_interval_s=self.min_interval_s,
        )


class Page:
    """Reads like a browser: events with a name and data, and the id to come back with."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.last_id: int | None = None
        self.ended = False

    async def read(self, stream: AsyncIterator[bytes]) -> None:
        async for chunk in stream:
            fields = dict(line.split(": ", 1) for line in chunk.decode().splitlines() if ": " in line)
            if "id" in fields:
                self.last_id = int(fields["id"])
            if "data" in fields:
                self.events.append((fields["event"], json.loads(fields["data"])))
        self.ended = True

    def values(self, kind: str) -> list[int]:
        return [thing["value"] for name, data in self.events if name == kind for thing in data["changed"]]


@asynccontextmanager
async def running(*tables: Table, **limits: Any) -> AsyncIterator[LiveFeed]:
    feed = LiveFeed([table.kind() for table in tables], **limits)
    task = asyncio.ensure_future(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def opened(feed: LiveFeed, *kinds: str, since: int | None = None) -> AsyncIterator[Page]:
    page = Page()
    task = asyncio.ensure_future(page.read(feed.follow(since, feed.choose(kinds))))
    try:
        yield page
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Any, within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110  what is waited for is anything at all
            await asyncio.sleep(0.005)


async def test_a_change_is_sent_once_and_complete() -> None:
    nodes = Table("nodes")
    async with running(nodes) as feed, opened(feed) as page:
        await until(lambda: nodes.reads >= 2)
        nodes.put("a", 1)
        feed.notify("nodes")
        await until(lambda: page.values("nodes") == [1])
        nodes.remove("a")
        feed.notify("nodes")
        await until(lambda: len(page.events) == 2)
        assert page.events[1] == ("nodes", {"changed": [], "removed": ["a"]})
        before = nodes.reads
        feed.notify("nodes")
        await until(lambda: nodes.reads > before)
        assert len(page.events) == 2


async def test_a_burst_of_500_changes_a_second_is_sent_as_a_few_updates_ending_with_the_latest() -> None:
    operations, nodes = Table("operations"), Table("nodes")
    async with running(operations, nodes) as feed, opened(feed) as page:
        await until(lambda: operations.reads >= 2)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for count in range(1000):
            operations.put("op", count)
            feed.notify("operations")
            await asyncio.sleep(max(0.0, began_s + (count + 1) / 500 - loop.time()))
        await until(lambda: page.values("operations")[-1:] == [999])
        took_s = loop.time() - began_s
        assert 3 <= len(page.events) <= took_s / MIN_INTERVAL_S + 2
        # The burst of one kind is none of the other's.
        assert nodes.reads < 10 + took_s / READ_EVERY_S


async def test_without_notifications_a_periodic_read_finds_the_change() -> None:
    nodes = Table("nodes", read_every_s=0.05)
    async with running(nodes) as feed, opened(feed) as page:
        await until(lambda: nodes.reads >= 2)
        nodes.put("a", 1)
        await until(lambda: page.values("nodes") == [1])


async def test_one_id_resumes_every_kind() -> None:
    nodes, operations = Table("nodes"), Table("operations")
    async with running(nodes, operations) as feed:
        async with opened(feed) as page:
            await until(lambda: nodes.reads >= 2 and operations.reads >= 2)
            nodes.put("a", 1)
            feed.notify("nodes")
            await until(lambda: page.values("nodes") == [1])
        assert page.last_id is not None
        nodes.put("b", 2)
        operations.put("op", 3)
        async with opened(feed, since=page.last_id) as back:
            await until(lambda: back.last_id is not None)
            assert 2 in back.values("nodes")
            assert set(back.values("operations")) == {3}


async def test_an_event_id_does_not_cover_changes_of_a_failing_kind() -> None:
    nodes, operations = Table("nodes"), Table("operations")
    async with running(nodes, operations) as feed, opened(feed) as page:
        await until(lambda: nodes.reads >= 2 and operations.reads >= 2)
        operations.broken = True
        reached = operations.now_ms
        nodes.now_ms += 60_000
        nodes.put("a", 1)
        feed.notify()
        await until(lambda: page.values("nodes") == [1])  # and the one that fails holds up nobody
        assert page.last_id is not None
        assert page.last_id <= reached


async def test_a_page_gets_only_the_kinds_it_requests() -> None:
    nodes, operations = Table("nodes"), Table("operations")
    async with running(nodes, operations) as feed, opened(feed, "operations") as page:
        await until(lambda: operations.reads >= 2)
        nodes.put("a", 1)
        operations.put("op", 2)
        feed.notify()
        await until(lambda: page.values("operations") == [2])
        assert page.values("nodes") == []
        with pytest.raises(InvalidInput, match="the kinds are nodes, operations"):
            feed.choose(["weather"])


async def test_a_page_that_does_not_read_is_dropped_and_the_others_go_on() -> None:
    nodes = Table("nodes", min_interval_s=0.001)
    async with running(nodes, queue_max=2) as feed, opened(feed) as page:
        stuck = feed.follow(None, feed.choose([]))
        assert await anext(stuck) == b"retry: 1000\n\n"
        await until(lambda: nodes.reads >= 2)
        for count in range(10):
            nodes.put("a", count)
            feed.notify()
            await until(lambda count=count: page.values("nodes")[-1:] == [count])
        assert [chunk async for chunk in stuck] == []


async def test_a_stop_ends_every_page() -> None:
    nodes = Table("nodes")
    async with running(nodes) as feed, opened(feed) as page:
        await until(lambda: nodes.reads >= 2)
        feed.close()
        await until(lambda: page.ended)


async def test_a_row_that_a_complete_read_lacks_is_removed() -> None:
    models = Table("models", is_whole=True)
    models.put("a", 1)
    models.put("b", 2)
    async with running(models) as feed, opened(feed) as page:
        await until(lambda: models.reads >= 2)
        models.put("b", 3)
        del models.rows["a"]
        feed.notify()
        await until(lambda: page.events)
        # The page has read the earlier state by itself.
        assert page.events == [("models", {"changed": [{"key": "b", "value": 3}], "removed": ["a"]})]
        feed.notify()
        before = models.reads
        await until(lambda: models.reads > before)
        assert len(page.events) == 1


@pytest.mark.parametrize("is_whole", [True, False])
async def test_nothing_is_missed_after_the_first_bytes(is_whole: bool) -> None:
    models = Table("models", is_whole=is_whole)
    async with running(models) as feed, aclosing(feed.follow(None, feed.choose(()))) as stream:
        await anext(stream)
        models.put("a", 1)
        feed.notify("models")
        async with asyncio.timeout(30):
            assert b'"key":"a"' in await anext(stream)


async def test_a_stream_starts_although_the_store_is_unreachable() -> None:
    models = Table("models", broken=True)
    async with running(models, start_within_s=0.05) as feed, aclosing(feed.follow(None, feed.choose(()))) as stream:
        async with asyncio.timeout(30):
            assert await anext(stream) == b"retry: 1000\n\n"
