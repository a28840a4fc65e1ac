"""The live feed behind `/api/events`: what changed, to every open page, for several kinds of things.

Hints on the bus say *when* to look; the store says what is true. With every hint lost, a look every two seconds finds
the same. However many hints come, a kind is looked at five times a second at most, and each look tells the latest
state: a burst never floods a page. A page that comes back with the id of its last event gets what it missed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from corral.core.errors import CorralError, InvalidInput
from corral.system.loops import keep_running, wait_or_timeout

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
LEAST_BETWEEN_S = 0.2
REST, REST_MOST_S = 5.0, 3.0
"""After a look, as many times as long nobody looks: a large fleet is told less often, and other work goes on."""
PING_EVERY_S = 15.0
BEGIN_WITHIN_S = 5.0
# A transaction may commit a little after the time it wrote: look back this far, and skip what was already told.
OVERLAP_MS = 5000
QUEUE_MOST = 256


@dataclass(frozen=True, slots=True)
class Change:
    key: str
    mark: Hashable
    """Differs between two states of the thing."""
    shown: object
    """The whole thing, as the API shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    now_ms: int
    """The store's time when this was read: nothing older is missing."""
    changed: Sequence[Change] = ()
    removed: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of things: the name of its events, and how to read it."""

    name: str
    read_since: Callable[[int], Awaitable[Changes]]
    read_all: Callable[[], Awaitable[Changes]] | None = None
    """For what changes without a mark, such as memory in use."""
    read_all_every_s: float = 10.0
    is_whole: bool = False
    """Every read tells all there is: what was in the last one and is not in this one is gone."""
    look_every_s: float = LOOK_EVERY_S
    least_between_s: float = LEAST_BETWEEN_S


_REMOVED: Hashable = object()


@dataclass(slots=True)
class _Watch:
    kind: Kind
    notified: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """There is a look to compare the next one with."""
    cursor_ms: int | None = None
    told: dict[str, Hashable] = field(default_factory=dict)
    all_due_s: float = 0.0

    def rest(self) -> None:
        """Nobody listens. Who comes next reads what is there by itself, and is told what changes from then on."""
        self.cursor_ms, self.told = None, {}
        self.begun.clear()

    def take_news(self, found: Changes) -> Changes:
        """What of it was not told yet. Only the last look is remembered: anything older cannot come again unchanged."""
        removed = list(found.removed)
        if self.kind.is_whole:
            there = {change.key for change in found.changed}
            removed += [key for key, mark in self.told.items() if mark is not _REMOVED and key not in there]
        marks = {change.key: change.mark for change in found.changed} | dict.fromkeys(removed, _REMOVED)
        before, self.told = self.told, marks
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
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(QUEUE_MOST))

    def end(self) -> None:
        """What is still queued is not sent: the page gets it when it comes back."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


def _event(name: str, news: Changes, *, id_ms: int | None = None) -> bytes:
    data = {"changed": [change.shown for change in news.changed], "removed": news.removed}
    head = b"id: %d\n" % id_ms if id_ms is not None else b""
    return head + b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


class LiveFeed:
    def __init__(self, kinds: Collection[Kind]) -> None:
        self._watches = {kind.name: _Watch(kind) for kind in kinds}
        self._pages: set[_Page] = set()
        self._closed = False

    def notify(self, *kinds: str) -> None:
        """Something changed; names that are no kind of ours are none of our business."""
        for name in kinds or tuple(self._watches):
            if name in self._watches:
                self._watches[name].notified.set()

    def close(self) -> None:
        """Every page is told to go; it will come back to whoever listens here next."""
        self._closed = True
        for page in self._pages:
            page.end()

    def choose(self, names: Collection[str]) -> frozenset[str]:
        """The kinds a page asks for; all of them when it names none."""
        unknown = sorted(set(names) - set(self._watches))
        if unknown:
            raise InvalidInput(f"there are no events of kind {unknown[0]!r}; the kinds are {', '.join(self._watches)}")
        return frozenset(names) or frozenset(self._watches)

    async def follow(self, last_event_ms: int | None, kinds: frozenset[str]) -> AsyncIterator[bytes]:
        """One page's stream. A page that does not read fast enough is dropped and resumes by its last id.

        It begins when every later change will be told: what a page reads after its first bytes misses nothing."""
        page = _Page(kinds)
        self._pages.add(page)
        self.notify(*kinds)
        try:
            await self._until_begun(kinds)
            yield b"retry: 1000\n\n"
            if last_event_ms is not None:
                async for event in self._read_missed(last_event_ms, kinds):
                    yield event
            while not self._closed:
                try:
                    async with asyncio.timeout(PING_EVERY_S):
                        queued = await page.queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if queued is None:
                    return
                yield queued
        finally:
            self._pages.discard(page)

    async def _until_begun(self, kinds: frozenset[str]) -> None:
        """Not for ever: while the store is away a page should know at least that we are here."""
        try:
            async with asyncio.timeout(BEGIN_WITHIN_S):
                for name in kinds:
                    await self._watches[name].begun.wait()
        except TimeoutError:
            log.info("feed.begun_late", kinds=sorted(kinds))

    async def _read_missed(self, last_event_ms: int, kinds: frozenset[str]) -> AsyncIterator[bytes]:
        """In the order in which the kinds are listed, each as soon as it is read."""
        read_at = []
        for name, watch in self._watches.items():
            if name in kinds:
                found = await watch.kind.read_since(last_event_ms - OVERLAP_MS)
                read_at.append(found.now_ms)
                yield _event(name, found)
        # The id comes last: a page that is cut off in between resumes from where it was.
        yield b"id: %d\n\n" % min(read_at)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches.values():
                name = f"feed {watch.kind.name}"
                tasks.create_task(keep_running(name, partial(self._keep_looking, watch)), name=name)

    async def _keep_looking(self, watch: _Watch) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await wait_or_timeout(watch.notified, within_s=watch.kind.look_every_s)
            if not any(watch.kind.name in page.kinds for page in self._pages):
                watch.rest()
                continue
            began_s = loop.time()
            try:
                await self._look(watch)
            except CorralError as error:
                log.warning("feed.look_failed", kind=watch.kind.name, error=str(error))
            took_s = loop.time() - began_s
            await asyncio.sleep(max(watch.kind.least_between_s, min(took_s * REST, REST_MOST_S)))

    async def _look(self, watch: _Watch) -> None:
        kind, now_s = watch.kind, asyncio.get_running_loop().time()
        # Without a cursor only the time is wanted: what was there before, a page reads by itself.
        since_ms = watch.cursor_ms if watch.cursor_ms is not None else (await kind.read_since(1 << 62)).now_ms
        found = await kind.read_since(since_ms - OVERLAP_MS)
        if watch.cursor_ms is None:
            watch.all_due_s = now_s + kind.read_all_every_s
        news = watch.take_news(found)
        if kind.read_all is not None and now_s >= watch.all_due_s:
            watch.all_due_s = now_s + kind.read_all_every_s
            everything = await kind.read_all()
            news = Changes(now_ms=found.now_ms, changed=everything.changed, removed=news.removed)
        watch.cursor_ms = found.now_ms
        watch.begun.set()
        if news.changed or news.removed:
            self._send(kind.name, _event(kind.name, news, id_ms=self._told_until_ms(found.now_ms)))

    def _told_until_ms(self, now_ms: int) -> int:
        """One cursor for all kinds: until then, everything of every kind has been told."""
        return min([now_ms, *(watch.cursor_ms for watch in self._watches.values() if watch.cursor_ms is not None)])

    def _send(self, kind: str, event: bytes) -> None:
        for page in [page for page in self._pages if kind in page.kinds]:
            if page.queue.full():
                self._pages.discard(page)
                page.end()
            else:
                page.queue.put_nowait(event)
