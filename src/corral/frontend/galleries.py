"""Galleries as last read. Look-ups do not wait for remote servers: galleries are refreshed in the background, and until
then the copies on disk are used, with their age."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import structlog

from corral.artifacts import Catalogue, GalleryStatus, ModelCatalogue
from corral.artifacts.settings import GallerySettings, gallery_at
from corral.core.backends.gallery_addresses import GalleryAddress
from corral.core.errors import CorralError
from corral.system import Clock

log = structlog.get_logger()

FIRST_READ_WITHIN_S = 5.0
"""How long a look-up waits, once, for a gallery that was never read."""
REFRESH_WITHIN_S = 5.0
"""How long a request waits for a refresh when it names an unknown entry, or needs the newest."""
RETRY_AFTER_S = 60.0
"""Delay until an unreachable gallery is read again."""

Found = TypeVar("Found", Catalogue, ModelCatalogue)


class GalleryReader(Protocol):
    async def read_catalogue(self, galleries: tuple[GallerySettings, ...] | None, *, ask: bool) -> Catalogue: ...

    async def read_model_catalogue(self, galleries: tuple[GallerySettings, ...], *, ask: bool) -> ModelCatalogue: ...


@dataclass(frozen=True, slots=True)
class _Read(Generic[Found]):
    catalogue: Found
    at_s: float


class _Cached(Generic[Found]):
    def __init__(self, read: Callable[[bool], Awaitable[Found]], clock: Clock) -> None:
        self._read: Callable[[bool], Awaitable[Found]] = read
        self._clock = clock
        self._last: _Read[Found] | None = None
        self._refreshed = asyncio.Event()
        self.edition = 0
        """Increases whenever a refresh finds other content than before."""

    @property
    def entries(self) -> int:
        return len(self._last.catalogue.entries) if self._last is not None else 0

    async def refresh(self) -> Sequence[GalleryStatus]:
        try:
            found = _Read(await self._read(True), self._clock.monotonic_s())
        finally:
            self._refreshed.set()
        if self._last is None or _content(self._last.catalogue) != _content(found.catalogue):
            self.edition += 1
        self._last = found
        return found.catalogue.galleries

    async def current(self) -> Found:
        last = await self._read_last()
        if not self._refreshed.is_set() and any(status.problem for status in last.catalogue.galleries):
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_READ_WITHIN_S):
                    await self._refreshed.wait()
            last = await self._read_last()
        elapsed_s = self._clock.monotonic_s() - last.at_s
        aged = tuple(_aged(status, elapsed_s) for status in last.catalogue.galleries)
        return replace(last.catalogue, galleries=aged)

    async def _read_last(self) -> _Read[Found]:
        if self._last is not None:
            return self._last
        kept = _Read(await self._read(False), self._clock.monotonic_s())
        if self._last is None:  # a refresh may have finished meanwhile
            self._last = kept
        return self._last


def _content(catalogue: Catalogue | ModelCatalogue) -> tuple[object, ...]:
    """All that a reader sees of it except its age."""
    return catalogue.entries, [(status.name, status.problem) for status in catalogue.galleries]


def _aged(status: GalleryStatus, elapsed_s: float) -> GalleryStatus:
    ships_with_corral = status.url.startswith("corral:")
    return status if ships_with_corral or not status.entries else replace(status, age_s=status.age_s + elapsed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """The version of the cached galleries of one kind."""

    name: str
    number: int
    entries: int


class Galleries:
    def __init__(
        self,
        reader: GalleryReader,
        *,
        backends: Iterable[GalleryAddress],
        models: Iterable[GalleryAddress],
        every_s: float,
        clock: Clock,
    ) -> None:
        self.backend_settings = tuple(map(gallery_at, backends))
        self.model_settings = tuple(map(gallery_at, models))
        self._every_s = every_s
        self._backends = _Cached(lambda ask: reader.read_catalogue(self.backend_settings, ask=ask), clock)
        self._models = _Cached(lambda ask: reader.read_model_catalogue(self.model_settings, ask=ask), clock)
        self._problems: dict[str, str] = {}
        self._changed: Callable[[], None] = lambda: None

    def listen(self, changed: Callable[[], None]) -> None:
        """`changed` is called when a refresh finds new content."""
        self._changed = changed

    def editions(self) -> list[Edition]:
        cached: dict[str, _Cached[Catalogue] | _Cached[ModelCatalogue]]
        cached = {"backends": self._backends, "models": self._models}
        return [Edition(name=name, number=kind.edition, entries=kind.entries) for name, kind in cached.items()]

    @property
    def backends_edition(self) -> int:
        """Increases whenever the backend galleries change."""
        return self._backends.edition

    async def backends(self) -> Catalogue:
        return await self._backends.current()

    async def models(self) -> ModelCatalogue:
        return await self._models.current()

    async def refresh(self) -> None:
        """Reads every gallery now."""
        before = self.editions()
        found = await asyncio.gather(self._backends.refresh(), self._models.refresh())
        problems = {status.url: status.problem for statuses in found for status in statuses if status.problem}
        for url in problems.keys() - self._problems.keys():
            log.warning("gallery.unreachable", url=url, error=problems[url])
        for url in self._problems.keys() - problems.keys():
            log.info("gallery.reachable_again", url=url)
        self._problems = problems
        if self.editions() != before:
            self._changed()

    async def look_again(self) -> None:
        """Refreshes for a few seconds at most; if that fails, the cached content stays."""
        try:
            async with asyncio.timeout(REFRESH_WITHIN_S):
                await self.refresh()
        except (TimeoutError, CorralError) as error:
            log.info("galleries.refresh_failed", error=str(error))

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(min(self._every_s, RETRY_AFTER_S) if self._problems else self._every_s)
