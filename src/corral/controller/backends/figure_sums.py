"""Sums of figures over hours or days. The store has rows for every minute; each is read once, not at each judgement."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from corral.core.backends.serving_figures import ServingFigures, VersionKey
from corral.store.backends.version_exits import MINUTE_MS
from corral.store.serving.version_figures import VersionRow

WRITTEN_MINUTES = 2
"""Frontends add to the current minute, in a transaction of some seconds: older ones do not change any more."""
KEPT = 64


class Figures(Protocol):
    async def read(
        self, *, digests: Collection[str], since_ms: int, until_ms: int | None = None
    ) -> list[VersionRow]: ...


@dataclass(frozen=True, slots=True)
class _Sum:
    until: int
    """The minute before which it is complete."""
    figures: dict[VersionKey, ServingFigures] = field(default_factory=dict)


class FigureSums:
    def __init__(self, store: Figures) -> None:
        self._store = store
        self._sums: dict[tuple[str, int, int | None], _Sum] = {}
        """By digest and minutes; the most recently used ones last."""

    async def read(
        self, digests: Collection[str], *, since_ms: int, until_ms: int | None = None, now_ms: int
    ) -> list[VersionRow]:
        """As `VersionFigureStore.read`. `now_ms`: by the store's clock."""
        first, last = since_ms // MINUTE_MS, None if until_ms is None else until_ms // MINUTE_MS
        written = now_ms // MINUTE_MS - WRITTEN_MINUTES
        ended = written if last is None else min(written, last)
        rows: list[VersionRow] = []
        for digest in sorted(digests):
            key = digest, first, last
            known = self._sums.get(key) or _Sum(first)
            if known.until < ended:
                known = _Sum(ended, _add(known.figures, await self._read(digest, known.until, ended)))
            self._sums.pop(key, None)
            self._sums[key] = known
            figures = known.figures
            if last is None or known.until < last:
                figures = _add(figures, await self._read(digest, known.until, last))
            rows += [VersionRow(key=one, figures=figures[one]) for one in sorted(figures)]
        while len(self._sums) > KEPT:
            del self._sums[next(iter(self._sums))]
        return rows

    async def _read(self, digest: str, first: int, last: int | None) -> list[VersionRow]:
        until_ms = None if last is None else last * MINUTE_MS
        return await self._store.read(digests=[digest], since_ms=first * MINUTE_MS, until_ms=until_ms)


def _add(figures: dict[VersionKey, ServingFigures], rows: Iterable[VersionRow]) -> dict[VersionKey, ServingFigures]:
    total = dict(figures)
    for row in rows:
        known = total.get(row.key)
        total[row.key] = row.figures if known is None else known + row.figures
    return total
