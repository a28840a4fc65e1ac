"""Which node has which version of what, and where policies do not hold: put together when something has changed, once
for all who ask."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from corral.core.backends.drift import Drift, FleetSnapshot
from corral.core.backends.intents import IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policy_exceptions import PolicyException, find_exceptions
from corral.core.backends.upgrades import Offers, find_unchecked, find_upgrades, installed_names
from corral.core.nodes.node import NodeId
from corral.frontend.api.backends.service import UpgradeChecks

KEPT_MOST_S = 5.0
"""A transaction may commit a little after the time it wrote, unseen by the mark."""

EXCEPTIONS_MOST = 100
"""Of a thousand machines nobody reads more."""


class PictureSource(Protocol):
    async def read_picture(self) -> FleetSnapshot: ...


class VersionMarks(Protocol):
    async def read_mark(self) -> tuple[int, ...]: ...


class Askers(Protocol):
    async def read_requesters(self, ids: Iterable[str]) -> Mapping[str, tuple[str, int]]: ...


@dataclass(frozen=True, slots=True)
class Exceptions:
    """Of one policy."""

    first: Sequence[PolicyException] = ()
    count: int = 0
    requesters: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By operation: who asked for what is otherwise there, and when."""


@dataclass(frozen=True, slots=True)
class _Kept:
    backends: Mapping[str, bytes] = field(default_factory=dict)
    exceptions: Mapping[str, Exceptions] = field(default_factory=dict)


class FleetListing:
    def __init__(self, source: PictureSource, upgrades: UpgradeChecks, marks: VersionMarks, requesters: Askers) -> None:
        self._source, self._upgrades, self._marks, self._askers = source, upgrades, marks, requesters
        self._making = asyncio.Lock()
        self._kept = _Kept()
        self._mark: tuple[int, ...] = ()
        self._kept_until_s = 0.0

    async def read(self) -> Mapping[str, bytes]:
        """By backend, as JSON; the same object as long as nothing has changed."""
        return (await self._read()).backends

    async def read_exceptions(self) -> Mapping[str, Exceptions]:
        """By policy that has any."""
        return (await self._read()).exceptions

    async def _read(self) -> _Kept:
        async with self._making:
            mark = (*await self._marks.read_mark(), self._upgrades.lookups)
            now_s = asyncio.get_running_loop().time()
            if mark != self._mark or now_s >= self._kept_until_s:
                self._kept = await self._make()
                self._mark, self._kept_until_s = mark, now_s + KEPT_MOST_S
            return self._kept

    async def _make(self) -> _Kept:
        picture = await self._source.read_picture()
        offers = await self._upgrades.read_offers(picture.states)

        def show() -> tuple[dict[str, bytes], dict[str, list[PolicyException]]]:
            fleet = view_fleet(picture.states, picture.find_drift(), offers)
            excepted = find_exceptions(picture.states, picture.policies, picture.previews)
            return {backend["name"]: msgspec.json.encode(backend) for backend in fleet}, excepted

        # Thousands of rows: not on the loop, where requests would wait for it.
        backends, excepted = await asyncio.to_thread(show)
        first = {policy: found[:EXCEPTIONS_MOST] for policy, found in excepted.items()}
        asked = {one.operation_id for found in first.values() for one in found if one.operation_id}
        requesters = await self._askers.read_requesters(asked) if asked else {}
        return _Kept(
            backends, {policy: Exceptions(found, len(excepted[policy]), requesters) for policy, found in first.items()}
        )


def view_fleet(states: Sequence[NodeBackends], drifts: Sequence[Drift], offers: Offers) -> list[dict[str, Any]]:
    upgrades = find_upgrades(states, offers)
    unchecked = {
        (name, one.node_id): one.reason for name, nodes in find_unchecked(states, offers).items() for one in nodes
    }
    by_place: dict[tuple[str, NodeId], list[Drift]] = {}
    for one in drifts:
        by_place.setdefault((one.backend, one.node_id), []).append(one)
    lagging = {(name, node.node_id) for name, upgrade in upgrades.items() for node in upgrade.nodes}
    places = installed_names(states)
    by_id = {state.node.id: state for state in states}
    for backend, node_id in by_place:
        holders = places.setdefault(backend, [])
        if node_id in by_id and all(state.node.id != node_id for state in holders):
            holders.append(by_id[node_id])
    _add_awaited(places, states)
    return [
        {
            "name": name,
            "nodes": [
                _place(state, name, by_place.get((name, state.node.id), []), (name, state.node.id) in lagging)
                | _outlook(state, name, unchecked.get((name, state.node.id), ""))
                for state in sorted(holders, key=lambda state: state.node.name)
            ],
        }
        for name, holders in sorted(places.items())
    ]


def _add_awaited(places: dict[str, list[NodeBackends]], states: Sequence[NodeBackends]) -> None:
    """Nodes that are to get a backend and do not have it yet, such as one that is away."""
    for state in states:
        for name, intent in state.newest.items():
            if intent.state.live and intent.verb.ensures_presence and state.find(name) is None:
                holders = places.setdefault(name, [])
                if all(holder.node.id != state.node.id for holder in holders):
                    holders.append(state)


def _open_order(state: NodeBackends, name: str) -> str:
    """Which change of it has been asked for and is not done."""
    intent = state.newest.get(state.key_of(name))
    return intent.verb.value if intent is not None and intent.state.live else ""


def _place(state: NodeBackends, name: str, drifts: list[Drift], lagging: bool) -> dict[str, Any]:
    found = state.find(name)
    return {
        "node_id": state.node.id,
        "node_name": state.node.name,
        "node_status": state.node.localai_status.value,
        "version": found.version if found is not None else "",
        "digest": found.digest if found is not None else "",
        "variant": found.name if found is not None else "",
        "current": found is not None and not lagging and not drifts,
        "drift": [{"cause": one.cause.value, "detail": one.detail, "process_key": one.process_key} for one in drifts],
        "versions": list(found.versions) if found is not None else [],
        "pending": _open_order(state, name),
    }


def _outlook(state: NodeBackends, name: str, unchecked: str) -> dict[str, Any]:
    """Why there may be something newer though nothing newer is told."""
    wanted = state.effective_intent(name)
    # A wiped disk that got it again has an install for its newest order, of what was gone back to.
    went_back = (
        wanted is not None
        and wanted.state is IntentState.SUCCEEDED
        and (wanted.verb is Verb.ROLLBACK or bool(wanted.spec.rolled_back_from))
    )
    return {"rolled_back": went_back, "unchecked": unchecked}
