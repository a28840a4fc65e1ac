"""The live feed behind `/api/events`: what changed, to every open page.

Hints on the bus say *when* to look; the store says what is true. With every hint lost, a look every two seconds finds
the same. A page that comes back with the id of its last event gets what it missed.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec
import structlog

from corral.core.errors import CorralError
from corral.core.nodes import Node, NodeId
from corral.frontend.admin.node_view import view_node

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
USAGE_EVERY_S = 10.0
PING_EVERY_S = 15.0
# A transaction may commit a little after the time it wrote: look back this far, and skip what was already told.
OVERLAP_MS = 5000
QUEUE_MOST = 256


class ChangeSource(Protocol):
    async def read_changes(self, since_ms: int) -> tuple[int, list[Node], list[NodeId]]: ...

    async def read_all(self) -> list[Node]: ...

    async def now_ms(self) -> int: ...


def _event(now_ms: int, changed: list[Node], removed: list[NodeId]) -> bytes:
    data = {
        "changed": [view_node(node, now_ms=now_ms) for node in changed],
        "removed": removed,
    }
    return b"id: %d\nevent: nodes\ndata: %s\n\n" % (now_ms, msgspec.json.encode(data))


class NodeFeed:
    def __init__(self, source: ChangeSource) -> None:
        self._source = source
        self._pages: set[asyncio.Queue[bytes | None]] = set()
        self._poked = asyncio.Event()
        self._cursor_ms: int | None = None
        self._told: dict[NodeId, int] = {}
        self._closed = False

    def poke(self) -> None:
        self._poked.set()

    def close(self) -> None:
        """Every page is told to go; it will come back to whoever listens here next."""
        self._closed = True
        for page in self._pages:
            _end(page)

    async def follow(self, last_event_ms: int | None) -> AsyncIterator[bytes]:
        """One page's stream. A page that does not read fast enough is dropped and resumes by its last id."""
        page: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_MOST)
        self._pages.add(page)
        self.poke()
        try:
            yield b"retry: 1000\n\n"
            if last_event_ms is not None:
                now_ms, changed, removed = await self._source.read_changes(last_event_ms - OVERLAP_MS)
                yield _event(now_ms, changed, removed)
            while not self._closed:
                try:
                    async with asyncio.timeout(PING_EVERY_S):
                        event = await page.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event is None:
                    return
                yield event
        finally:
            self._pages.discard(page)

    async def run(self) -> None:
        usage_due = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()
            if not self._pages:
                self._cursor_ms = None
                continue
            try:
                with_usage = loop.time() >= usage_due
                if with_usage:
                    usage_due = loop.time() + USAGE_EVERY_S
                await self._look(with_usage=with_usage)
            except CorralError as error:
                log.warning("feed.look_failed", error=str(error))

    async def _look(self, *, with_usage: bool) -> None:
        if self._cursor_ms is None:
            self._cursor_ms = await self._source.now_ms()
        now_ms, changed, removed = await self._source.read_changes(self._cursor_ms - OVERLAP_MS)
        self._cursor_ms = now_ms
        fresh = [node for node in changed if self._told.get(node.id) != node.changed_at]
        gone = [node_id for node_id in removed if self._told.get(node_id) != -1]
        self._told.update({node.id: node.changed_at for node in fresh})
        self._told.update(dict.fromkeys(gone, -1))
        if with_usage:
            fresh = await self._source.read_all()
        if fresh or gone:
            self._send(_event(now_ms, fresh, gone))

    def _send(self, event: bytes) -> None:
        for page in list(self._pages):
            if page.full():
                self._pages.discard(page)
                _end(page)
            else:
                page.put_nowait(event)


def _end(page: asyncio.Queue[bytes | None]) -> None:
    """What is still queued is not sent: the page gets it when it comes back."""
    while not page.empty():
        page.get_nowait()
    page.put_nowait(None)
