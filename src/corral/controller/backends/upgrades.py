"""What the galleries offer to each node now, against what it has at this moment."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from corral.controller.backends.create_operation import Fleet
from corral.core.backends.planning import NodeBackends
from corral.core.backends.upgrades import (
    Offered,
    Offers,
    Unchecked,
    Unknown,
    Upgrade,
    find_unchecked,
    find_upgrades,
    installed_names,
)
from corral.core.errors import CorralError
from corral.core.nodes.node import NodeId
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

FIRST_LOOK_WITHIN_S = 10.0
AGAIN_AFTER_S = 60.0
"""When something that could not be looked up for a reader is looked up for one again."""
NOT_ASKED = Unknown("its source has not answered yet; it is asked again", passing=True)
GATHER_S = 0.1
"""Who asks all frontends hears the question too; one look answers both."""


class States(Protocol):
    async def read_states(self) -> list[NodeBackends]: ...


class Refreshable(Protocol):
    async def refresh(self) -> None: ...

    async def look_again(self) -> None:
        """For a moment only."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a backend is installed."""

    state: NodeBackends
    versions: frozenset[str]
    """By digest: the one it has, and the one that was last asked for there."""


_Places = Mapping[str, Sequence[_Place]]


@dataclass(frozen=True, slots=True)
class _Found:
    offered: Offered | Unknown
    known: frozenset[str]
    """Versions that were there, asked for or offered at this look and before."""

    def is_outdated(self, versions: frozenset[str]) -> bool:
        """One of them was never heard of: there must have been news since."""
        return not versions <= self.known


class UpgradeCheck:
    def __init__(
        self,
        *,
        fleet: Fleet,
        states: States,
        galleries: Refreshable,
        every_s: float,
        tell: Callable[[], Awaitable[None]],
    ) -> None:
        """`tell`: pokes this on every frontend, so that all of them answer alike."""
        self._fleet, self._states, self._galleries, self._every_s, self._tell = fleet, states, galleries, every_s, tell
        self._found: dict[tuple[str, NodeId], _Found] = {}
        self._problems: dict[tuple[str, NodeId], Unknown] = {}
        """Why the last look found nothing out; it is repeated."""
        self._not_before_s: dict[str, float] = {}
        self._looks = 0
        self._poked = asyncio.Event()
        self._expected: asyncio.Future[None] | None = None
        """The end of the next look."""
        self._looking = asyncio.Lock()

    def notify(self) -> None:
        self._poked.set()

    async def ask(self, *, wait_s: float = 0.0) -> bool:
        """Galleries and registries are looked into anew, for every frontend. True when ours has, within the time."""
        if self._expected is None:
            self._expected = asyncio.get_running_loop().create_future()
        expected = self._expected
        await self._tell()
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.shield(expected)
        except TimeoutError:
            return False
        return True

    async def read(self) -> Mapping[str, Upgrade]:
        """Against what nodes have now."""
        states = await self._states.read_states()
        return find_upgrades(states, await self.read_offers(states))

    async def read_unchecked(self) -> Mapping[str, Sequence[Unchecked]]:
        """By backend: where nobody can tell whether there is something newer."""
        states = await self._states.read_states()
        return find_unchecked(states, await self.read_offers(states))

    async def read_offers(self, states: Sequence[NodeBackends]) -> Offers:
        """By backend and node. Looked up now is only what was never looked up for these, and what is outdated by what
        they have got since, for example by an upgrade that another frontend admitted."""
        places = await asyncio.to_thread(_find_places, states)
        if self._unknown(places):
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOK_WITHIN_S):
                    async with self._looking:
                        await self._look_for_reader(self._unknown(places))
        return {
            (name, place.state.node.id): self._offer(name, place)
            for name, holders in places.items()
            for place in holders
        }

    def _offer(self, name: str, place: _Place) -> Offered | Unknown:
        problem = self._problems.get((name, place.state.node.id))
        if problem is not None:
            return problem
        found = self._of(name, place)
        return found.offered if found is not None and not found.is_outdated(place.versions) else NOT_ASKED

    @property
    def looks(self) -> int:
        """Counts up with every answer of a gallery."""
        return self._looks

    async def run(self) -> None:
        while True:
            if not await wait_or_timeout(self._poked, within_s=self._every_s):
                await self._tell()
                continue
            await asyncio.sleep(GATHER_S)
            self._poked.clear()
            expected, self._expected = self._expected, None
            await self._galleries.refresh()
            async with self._looking:
                await self._look(await asyncio.to_thread(_find_places, await self._states.read_states()))
            if expected is not None:
                expected.set_result(None)

    def _unknown(self, places: _Places) -> _Places:
        now_s = asyncio.get_running_loop().time()
        unknown = {
            name: holders if self._are_outdated(name, holders) else [one for one in holders if self._is_open(name, one)]
            for name, holders in places.items()
            if now_s >= self._not_before_s.get(name, 0.0)
        }
        return {name: holders for name, holders in unknown.items() if holders}

    def _are_outdated(self, name: str, holders: Iterable[_Place]) -> bool:
        return any((found := self._of(name, one)) and found.is_outdated(one.versions) for one in holders)

    def _is_open(self, name: str, place: _Place) -> bool:
        return self._of(name, place) is None or (name, place.state.node.id) in self._problems

    def _of(self, name: str, place: _Place) -> _Found | None:
        return self._found.get((name, place.state.node.id))

    async def _look_for_reader(self, places: _Places) -> None:
        self._put_off(places)  # we may be cut off by a reader's patience
        if any(self._are_outdated(name, holders) for name, holders in places.items()):
            await self._galleries.look_again()
        await self._look(places)

    def _put_off(self, names: Iterable[str]) -> None:
        """The next reader does not wait for the same silence."""
        until_s = asyncio.get_running_loop().time() + AGAIN_AFTER_S
        self._not_before_s |= dict.fromkeys(names, until_s)

    async def _look(self, places: _Places) -> None:
        for name, holders in places.items():
            self._put_off([name])
            try:
                offers = await self._fleet.find_offers(name, [place.state for place in holders])
            except CorralError as error:
                offers = {place.state.node.id: Unknown(str(error), passing=True) for place in holders}
            self._looks += 1
            for place in holders:
                at, offered = (name, place.state.node.id), offers[place.state.node.id]
                if isinstance(offered, Unknown) and offered.passing:
                    log.warning("upgrades.not_known", backend=name, node=place.state.node.name, reason=offered.reason)
                    self._problems[at] = offered
                    continue
                self._problems.pop(at, None)
                self._found[at] = self._find(name, place, offered)
            if not any((name, place.state.node.id) in self._problems for place in holders):
                del self._not_before_s[name]

    def _find(self, name: str, place: _Place, offered: Offered | Unknown) -> _Found:
        before = self._of(name, place)
        known = place.versions | (before.known if before is not None else frozenset())
        return _Found(offered, known | {offered.digest} if isinstance(offered, Offered) else known)


def _find_places(states: Iterable[NodeBackends]) -> _Places:
    return {
        name: [_Place(state, _versions_of(state, name)) for state in holders]
        for name, holders in installed_names(states).items()
    }


def _versions_of(state: NodeBackends, name: str) -> frozenset[str]:
    found, wanted = state.find(name), state.newest.get(state.key_of(name))
    digests = [found.digest if found is not None else "", wanted.spec.digest if wanted is not None else ""]
    return frozenset(digest for digest in digests if digest)
