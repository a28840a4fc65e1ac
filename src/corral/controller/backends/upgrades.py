"""Compares what the galleries offer to each node with what the node has."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.backends.build import BuildRef
from corral.core.backends.planning import NodeBackends
from corral.core.backends.rollouts import HeldBack
from corral.core.backends.upgrades import (
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
from corral.store.backends.rollouts import RolloutStore

log = structlog.get_logger()

FIRST_LOOKUP_WITHIN_S = 10.0
AGAIN_AFTER_S = 60.0
"""When a failed lookup is repeated for a reader."""
NOT_LOOKED_UP = Unknown("its source has not answered yet; the check will be repeated", transient=True)
GATHER_S = 0.1
"""A frontend that notifies all frontends receives its own notification; one lookup serves both."""


class RefreshableGalleries(Protocol):
    async def refresh(self) -> None: ...

    async def look_again(self) -> None:
        """Reads the galleries again, unless that was a moment ago."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """A node that has the backend."""

    state: NodeBackends
    versions: frozenset[str]
    """Digests of the installed version and of the newest intent's."""


_Places = Mapping[str, Sequence[_Place]]


@dataclass(frozen=True, slots=True)
class _Found:
    offered: BuildRef | Unknown
    known: frozenset[str]
    """Digests that were installed, requested or offered at this lookup and before."""

    def is_outdated(self, versions: frozenset[str]) -> bool:
        """Whether one of them is unknown, so that the offer must have changed since."""
        return not versions <= self.known


class UpgradeCheck:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        fleet: Fleet,
        states: PolicyReconciler,
        galleries: RefreshableGalleries,
        rollouts: RolloutStore,
        every_s: float,
        notify_all: Callable[[], Awaitable[None]],
    ) -> None:
        """`notify_all` wakes this on every frontend, so that all of them give the same answer."""
        self.loop = Reconciler("upgrades", self._reconcile, runtime, every_s=every_s, gather_s=GATHER_S, at_start=False)
        self._fleet, self._states, self._galleries, self._notify_all = fleet, states, galleries, notify_all
        self._rollouts = rollouts
        self._found: dict[tuple[str, NodeId], _Found] = {}
        self._problems: dict[tuple[str, NodeId], Unknown] = {}
        """Why the last lookup failed; it is repeated."""
        self._not_before_s: dict[str, float] = {}
        self._lookups = 0
        self._waiters: list[asyncio.Future[None]] = []
        """Done after the next lookup."""
        self._lock = asyncio.Lock()

    async def check_now(self, *, wait_s: float = 0.0) -> bool:
        """Makes every frontend look up galleries and registries again. True if this one has, within the time."""
        looked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(looked)
        await self._notify_all()
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.shield(looked)
        except TimeoutError:
            return False
        return True

    async def read(self) -> Mapping[str, Upgrade]:
        """Available upgrades for what the nodes have now."""
        states = await self._states.read_states()
        return find_upgrades(states, await self.read_offers(states), await self.read_held_back())

    async def read_held_back(self) -> Sequence[HeldBack]:
        """Versions that are not offered to every node, because a rollout tries them or they failed in one."""
        return await self._rollouts.read_held_back()

    async def read_unchecked(self) -> Mapping[str, Sequence[Unchecked]]:
        """By backend: nodes for which it is unknown whether a newer version exists."""
        states = await self._states.read_states()
        return find_unchecked(states, await self.read_offers(states))

    async def read_offers(self, states: Sequence[NodeBackends]) -> Offers:
        """By backend and node. Only missing answers are looked up now, and those that are outdated by a newer version
        on a node, for example after an upgrade through another frontend."""
        places = await asyncio.to_thread(_find_places, states)
        if self._unknown(places):
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOKUP_WITHIN_S):
                    async with self._lock:
                        await self._look_up_for_reader(self._unknown(places))
        return {
            (name, place.state.node.id): self._offer(name, place)
            for name, holders in places.items()
            for place in holders
        }

    def _offer(self, name: str, place: _Place) -> BuildRef | Unknown:
        problem = self._problems.get((name, place.state.node.id))
        if problem is not None:
            return problem
        found = self._of(name, place)
        return found.offered if found is not None and not found.is_outdated(place.versions) else NOT_LOOKED_UP

    @property
    def lookups(self) -> int:
        """How many backends have been looked up so far."""
        return self._lookups

    async def _reconcile(self, run: ReconcileRun) -> None:
        if not run.notified:
            await self._notify_all()  # this frontend too
            return
        waiters, self._waiters = self._waiters, []
        try:
            await self._galleries.refresh()
            async with self._lock:
                await self._look_up(await asyncio.to_thread(_find_places, await self._states.read_states()))
        except BaseException:
            self._waiters += waiters  # the retry answers them
            raise
        for looked in waiters:
            looked.set_result(None)

    def _unknown(self, places: _Places) -> _Places:
        now_s = asyncio.get_running_loop().time()
        unknown = {
            name: holders
            if self._are_outdated(name, holders)
            else [one for one in holders if self._is_unanswered(name, one)]
            for name, holders in places.items()
            if now_s >= self._not_before_s.get(name, 0.0)
        }
        return {name: holders for name, holders in unknown.items() if holders}

    def _are_outdated(self, name: str, holders: Iterable[_Place]) -> bool:
        return any((found := self._of(name, one)) and found.is_outdated(one.versions) for one in holders)

    def _is_unanswered(self, name: str, place: _Place) -> bool:
        return self._of(name, place) is None or (name, place.state.node.id) in self._problems

    def _of(self, name: str, place: _Place) -> _Found | None:
        return self._found.get((name, place.state.node.id))

    async def _look_up_for_reader(self, places: _Places) -> None:
        self._postpone(places)  # the reader may stop waiting
        if any(self._are_outdated(name, holders) for name, holders in places.items()):
            await self._galleries.look_again()
        await self._look_up(places)

    def _postpone(self, names: Iterable[str]) -> None:
        """So that the next reader does not wait for the same source."""
        until_s = asyncio.get_running_loop().time() + AGAIN_AFTER_S
        self._not_before_s |= dict.fromkeys(names, until_s)

    async def _look_up(self, places: _Places) -> None:
        for name, holders in places.items():
            self._postpone([name])
            try:
                offers = await self._fleet.find_offers(name, [place.state for place in holders])
            except CorralError as error:
                offers = {place.state.node.id: Unknown(str(error), transient=True) for place in holders}
            self._lookups += 1
            for place in holders:
                at, offered = (name, place.state.node.id), offers[place.state.node.id]
                if isinstance(offered, Unknown) and offered.transient:
                    log.warning("upgrades.unknown", backend=name, node=place.state.node.name, reason=offered.reason)
                    self._problems[at] = offered
                    continue
                self._problems.pop(at, None)
                self._found[at] = self._find(name, place, offered)
            if not any((name, place.state.node.id) in self._problems for place in holders):
                del self._not_before_s[name]

    def _find(self, name: str, place: _Place, offered: BuildRef | Unknown) -> _Found:
        before = self._of(name, place)
        known = place.versions | (before.known if before is not None else frozenset())
        return _Found(offered, known | {offered.digest} if isinstance(offered, BuildRef) else known)


def _find_places(states: Iterable[NodeBackends]) -> _Places:
    return {
        name: [_Place(state, _versions_of(state, name)) for state in holders]
        for name, holders in installed_names(states).items()
    }


def _versions_of(state: NodeBackends, name: str) -> frozenset[str]:
    found, newest = state.find(name), state.newest.get(state.key_of(name))
    digests = [found.digest if found is not None else "", newest.spec.build.digest if newest is not None else ""]
    return frozenset(digest for digest in digests if digest)
