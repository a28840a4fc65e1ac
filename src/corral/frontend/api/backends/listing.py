"""`/api/fleet/backends`: which node has which version of which backend, and where policies do not hold. Computed when
something has changed, once for all readers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from fastapi import APIRouter, Response

from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.backends.upgrades import UpgradeCheck
from corral.core.backends.drift import Drift, DriftCause
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policy_exceptions import PolicyException, find_exceptions
from corral.core.backends.rollouts import HeldBack
from corral.core.backends.upgrades import Offers, OutdatedNode, find_unchecked, find_upgrades, installed_names
from corral.core.nodes.node import NodeId, NodeStatus
from corral.store.backends.intents import IntentStore
from corral.store.backends.operations import OperationStore

KEPT_MAX_S = 5.0
"""A transaction may commit a little later than the time it wrote, so the mark can miss it."""

EXCEPTIONS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftView:
    cause: DriftCause
    detail: str
    process_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOnNode:
    """One backend on one node."""

    node_id: str
    node_name: str
    node_status: NodeStatus
    version: str
    digest: str
    variant: str
    current: bool
    drift: list[DriftView]
    versions: list[str]
    """Digests of the versions on the node's disk, newest first."""
    pending: str
    """The verb of the change that was requested and is not done yet; empty when there is none."""
    pinned: str
    """To which version it is pinned, since when, by whom and why; empty where it follows the galleries."""
    held_back: str
    """Why the newest version is not offered: in which rollout it failed, when and why. Empty where it is."""
    unchecked: str
    """Why it is unknown whether a newer version exists; empty when it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBackend:
    name: str
    nodes: list[BackendOnNode]


@dataclass(frozen=True, slots=True)
class Exceptions:
    """The exceptions of one policy."""

    first: Sequence[PolicyException] = ()
    count: int = 0
    requested_by: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By operation: who requested it, and when."""


@dataclass(frozen=True, slots=True)
class _Computed:
    backends: Mapping[str, bytes] = field(default_factory=dict)
    exceptions: Mapping[str, Exceptions] = field(default_factory=dict)


class FleetListing:
    def __init__(
        self, policies: PolicyReconciler, upgrades: UpgradeCheck, intents: IntentStore, operations: OperationStore
    ) -> None:
        self._policies, self._upgrades, self._intents, self._operations = policies, upgrades, intents, operations
        self._computing = asyncio.Lock()
        self._computed = _Computed()
        self._mark: tuple[int, ...] = ()
        self._kept_until_s = 0.0

    async def read(self) -> Mapping[str, bytes]:
        """By backend, as JSON; the same object as long as nothing has changed."""
        return (await self._read()).backends

    async def read_exceptions(self) -> Mapping[str, Exceptions]:
        """By policy that has any."""
        return (await self._read()).exceptions

    async def _read(self) -> _Computed:
        async with self._computing:
            mark = (*await self._intents.read_mark(), self._upgrades.lookups)
            now_s = asyncio.get_running_loop().time()
            if mark != self._mark or now_s >= self._kept_until_s:
                self._computed = await self._compute()
                self._mark, self._kept_until_s = mark, now_s + KEPT_MAX_S
            return self._computed

    async def _compute(self) -> _Computed:
        snapshot = await self._policies.read_snapshot()
        offers = await self._upgrades.read_offers(snapshot.states)
        held = await self._upgrades.read_held_back()

        def compute() -> tuple[dict[str, bytes], dict[str, list[PolicyException]]]:
            fleet = view_fleet(snapshot.states, snapshot.find_drift(), offers, held)
            exceptions = find_exceptions(snapshot.states, snapshot.policies, snapshot.previews)
            return {backend.name: msgspec.json.encode(backend) for backend in fleet}, exceptions

        # Thousands of rows: in a thread, so that requests do not wait for it.
        backends, exceptions = await asyncio.to_thread(compute)
        first = {policy: found[:EXCEPTIONS_MAX] for policy, found in exceptions.items()}
        operations = {one.operation_id for found in first.values() for one in found if one.operation_id}
        requested_by = await self._operations.read_requesters(operations) if operations else {}
        return _Computed(
            backends,
            {policy: Exceptions(found, len(exceptions[policy]), requested_by) for policy, found in first.items()},
        )


def fleet_listing_routes(listing: FleetListing) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.get("/api/fleet/backends", response_model=list[FleetBackend])
    async def list_fleet_backends() -> Response:
        """Lists every backend with the nodes that have it or are to get it, and their versions."""
        return Response(b"[%s]" % b",".join((await listing.read()).values()), media_type="application/json")

    return router


def view_fleet(
    states: Sequence[NodeBackends], drifts: Sequence[Drift], offers: Offers, held: Sequence[HeldBack] = ()
) -> list[FleetBackend]:
    unchecked = {
        (name, one.node_id): one.reason for name, nodes in find_unchecked(states, offers).items() for one in nodes
    }
    lagging = {
        (name, node.node_id): node
        for name, upgrade in find_upgrades(states, offers, held).items()
        for node in upgrade.nodes
    }
    drift_at: dict[tuple[str, NodeId], list[Drift]] = {}
    for one in drifts:
        drift_at.setdefault((one.backend, one.node_id), []).append(one)

    def view(state: NodeBackends, name: str) -> BackendOnNode:
        place = (name, state.node.id)
        return _view(state, name, drift_at.get(place, []), lagging.get(place), unchecked.get(place, ""))

    return [
        FleetBackend(name=name, nodes=[view(state, name) for state in sorted(there, key=lambda one: one.node.name)])
        for name, there in sorted(_find_places(states, drift_at).items())
    ]


def _find_places(
    states: Sequence[NodeBackends], drift_at: Mapping[tuple[str, NodeId], object]
) -> dict[str, list[NodeBackends]]:
    """By backend: the nodes that have it, drift from a policy about it, or are to get it, such as one that is
    offline."""
    places = installed_names(states)
    by_id = {state.node.id: state for state in states}
    missing = [(backend, by_id[node_id]) for backend, node_id in drift_at if node_id in by_id]
    missing += [
        (name, state)
        for state in states
        for name, intent in state.newest.items()
        if intent.state.live and intent.verb.ensures_presence and state.find(name) is None
    ]
    for backend, state in missing:
        there = places.setdefault(backend, [])
        if all(other.node.id != state.node.id for other in there):
            there.append(state)
    return places


def _view(
    state: NodeBackends, name: str, drifts: Sequence[Drift], lagging: OutdatedNode | None, unchecked: str
) -> BackendOnNode:
    found = state.find(name)
    return BackendOnNode(
        node_id=state.node.id,
        node_name=state.node.name,
        node_status=state.node.localai_status,
        version=found.version if found is not None else "",
        digest=found.digest if found is not None else "",
        variant=found.name if found is not None else "",
        current=found is not None and lagging is None and not drifts,
        drift=[DriftView(cause=one.cause, detail=one.detail, process_key=one.process_key) for one in drifts],
        versions=list(found.versions) if found is not None else [],
        pending=_pending_verb(state, name),
        pinned=desired.reason if (desired := state.desired_version(name)).pin is not None else "",
        held_back=lagging.held_back if lagging is not None else "",
        unchecked=unchecked,
    )


def _pending_verb(state: NodeBackends, name: str) -> str:
    intent = state.newest.get(state.key_of(name))
    return intent.verb.value if intent is not None and intent.state.live else ""
