"""The live feed behind `/api/events`: sends changes of several kinds of rows to every open page.

Change notifications on the bus say *when* to read; the store has the data. If all notifications are lost, a read every
two seconds finds the same changes. However many arrive, a kind is read five times a second at most, and each read sends
the latest state, so a burst never floods a page. A page that reconnects with the id of its last event gets what it
missed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from corral.core.errors import CorralError, InvalidInput
from corral.system.loops import keep_running, wait_or_timeout

log = structlog.get_logger()

READ_EVERY_S = 2.0
MIN_INTERVAL_S = 0.2
PAUSE_FACTOR, PAUSE_MAX_S = 5.0, 3.0
"""The pause after a read, in multiples of its duration: a large fleet is read less often, which leaves time for other
work."""
PING_EVERY_S = 15.0
START_WITHIN_S = 5.0
# A transaction may commit a little later than the time it wrote: read back this far, and skip what was sent.
OVERLAP_MS = 5000
QUEUE_MAX = 256


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    mark: Hashable
    """Differs between two states of the row."""
    shown: object
    """The whole object, as the API shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    now_ms: int
    """The store's time of the read: it has all changes before that."""
    changed: Sequence[Change] = ()
    removed: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of rows: the name of its events, and how to read them."""

    name: str
    read_since: Callable[[int], Awaitable[Changes]]
    read_all: Callable[[], Awaitable[Changes]] | None = None
    """For changes without a mark, such as memory in use."""
    read_all_every_s: float = 10.0
    is_whole: bool = False
    """Whether every read is complete: rows of the last read that are not in this one are removed."""
    read_every_s: float = READ_EVERY_S
    min_interval_s: float = MIN_INTERVAL_S


_REMOVED: Hashable = object()


@dataclass(slots=True)
class _Watch:
    kind: Kind
    notified: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a read to compare the next one with."""
    cursor_ms: int | None = None
    sent: dict[str, Hashable] = field(default_factory=dict)
    all_due_s: float = 0.0

    def reset(self) -> None:
        """No page listens. The next page reads the current state by itself, and gets the changes from then on."""
        self.cursor_ms, self.sent = None, {}
        self.started.clear()

    def take_new(self, found: Changes) -> Changes:
        """The changes that were not sent yet. Only the last read is remembered: older rows cannot appear again
        unchanged."""
        removed = list(found.removed)
        if self.kind.is_whole:
            there = {change.key for change in found.changed}
            removed += [key for key, mark in self.sent.items() if mark is not _REMOVED and key not in there]
        marks = {change.key: change.mark for change in found.changed} | dict.fromkeys(removed, _REMOVED)
        before, self.sent = self.sent, marks
        if self.kind.is_whole and self.cursor_ms is None:
            return Changes(now_ms=found.now_ms)
        return Changes(
            now_ms=found.now_ms,
            changed=[change for change in found.changed if before.get(change.key) != change.mark],
            removed=[key for key in removed if before.get(key) is not _REMOVED],
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Page:
    kinds: frozenset[str]
    queue: asyncio.Queue[bytes | None]

    def end(self) -> None:
        """Queued events are dropped: the page gets them when it reconnects."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


def _event(name: str, changes: Changes, *, id_ms: int | None = None) -> bytes:
    data = {"changed": [change.shown for change in changes.changed], "removed": changes.removed}
    head = b"id: %d\n" % id_ms if id_ms is not None else b""
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


class LiveFeed:
    def __init__(
        self, kinds: Collection[Kind], *, queue_max: int = QUEUE_MAX, start_within_s: float = START_WITHIN_S
    ) -> None:
        """`queue_max`: events that wait for one page; a page with more is disconnected. `start_within_s`: how long the
        first bytes of a stream wait for the store."""
        self._watches = {kind.name: _Watch(kind) for kind in kinds}
        self._queue_max, self._start_within_s = queue_max, start_within_s
        self._pages: set[_Page] = set()
        self._closed = False

    def notify(self, *kinds: str) -> None:
        """Rows of these kinds changed; unknown kinds are ignored."""
        for name in kinds or tuple(self._watches):
            if name in self._watches:
                self._watches[name].notified.set()

    def close(self) -> None:
        """Ends every page's stream; the pages reconnect to the next process that listens here."""
        self._closed = True
        for page in self._pages:
            page.end()

    def choose(self, names: Collection[str]) -> frozenset[str]:
        """The kinds that a page requests; all of them when it names none."""
        unknown = sorted(set(names) - set(self._watches))
        if unknown:
            raise InvalidInput(f"unknown kind of events {unknown[0]!r}; the kinds are {', '.join(self._watches)}")
        return frozenset(names) or frozenset(self._watches)

    async def follow(self, last_event_ms: int | None, kinds: frozenset[str]) -> AsyncGenerator[bytes, None]:
        """The stream of one page. A page that reads too slowly is disconnected, and resumes by its last event id.

        The first bytes are sent when every later change will be sent too: a page that then reads the current state
        misses nothing."""
        page = _Page(kinds, asyncio.Queue(self._queue_max))
        self._pages.add(page)
        self.notify(*kinds)
        try:
            await self._wait_for_start(kinds)
            yield b"retry: 1000\n\n"
            if last_event_ms is not None:
                async for event in self._read_missed(last_event_ms, kinds):
                    yield event
            while not self._closed:
                try:
                    async with asyncio.timeout(PING_EVERY_S):
                        queued = await page.queue.get()
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                if queued is None:
                    return
                yield queued
        finally:
            self._pages.discard(page)

    async def _wait_for_start(self, kinds: frozenset[str]) -> None:
        """For a few seconds at most: while the store is unreachable, the page gets an open stream at least."""
        try:
            async with asyncio.timeout(self._start_within_s):
                for name in kinds:
                    await self._watches[name].started.wait()
        except TimeoutError:
            log.info("feed.start_delayed", kinds=sorted(kinds))

    async def _read_missed(self, last_event_ms: int, kinds: frozenset[str]) -> AsyncIterator[bytes]:
        """Events of each kind as soon as it is read, in the order of the kinds."""
        read_at = []
        for name, watch in self._watches.items():
            if name in kinds:
                found = await watch.kind.read_since(last_event_ms - OVERLAP_MS)
                read_at.append(found.now_ms)
                yield _event(name, found)
        # The id comes last: a page that is disconnected before it resumes from its previous id.
        yield b"id: %d\n\n" % min(read_at)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches.values():
                name = f"feed {watch.kind.name}"
                tasks.create_task(keep_running(name, partial(self._keep_reading, watch)), name=name)

    async def _keep_reading(self, watch: _Watch) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await wait_or_timeout(watch.notified, within_s=watch.kind.read_every_s)
            if not any(watch.kind.name in page.kinds for page in self._pages):
                watch.reset()
                continue
            began_s = loop.time()
            try:
                await self._read(watch)
            except CorralError as error:
                log.warning("feed.read_failed", kind=watch.kind.name, error=str(error))
            took_s = loop.time() - began_s
            await asyncio.sleep(max(watch.kind.min_interval_s, min(took_s * PAUSE_FACTOR, PAUSE_MAX_S)))

    async def _read(self, watch: _Watch) -> None:
        kind, now_s = watch.kind, asyncio.get_running_loop().time()
        # Without a cursor only the time is needed: a page reads the current state by itself.
        since_ms = watch.cursor_ms if watch.cursor_ms is not None else (await kind.read_since(1 << 62)).now_ms
        found = await kind.read_since(since_ms - OVERLAP_MS)
        if watch.cursor_ms is None:
            watch.all_due_s = now_s + kind.read_all_every_s
        new = watch.take_new(found)
        if kind.read_all is not None and now_s >= watch.all_due_s:
            watch.all_due_s = now_s + kind.read_all_every_s
            everything = await kind.read_all()
            new = Changes(now_ms=found.now_ms, changed=everything.changed, removed=new.removed)
        watch.cursor_ms = found.now_ms
        watch.started.set()
        if new.changed or new.removed:
            self._send(kind.name, _event(kind.name, new, id_ms=self._sent_until_ms(found.now_ms)))

    def _sent_until_ms(self, now_ms: int) -> int:
        """One cursor for all kinds: all changes before it were sent."""
        return min([now_ms, *(watch.cursor_ms for watch in self._watches.values() if watch.cursor_ms is not None)])

    def _send(self, kind: str, event: bytes) -> None:
        for page in [page for page in self._pages if kind in page.kinds]:
            if page.queue.full():
                self._pages.discard(page)
                page.end()
            else:
                page.queue.put_nowait(event)
