"""Plans the rollout of an operation: which nodes change their version, in which waves, and from what."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from corral.core.backends.build import BuildRef
from corral.core.backends.intents import BackendSpec
from corral.core.backends.operations import NewIntent
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Policy, policy_for
from corral.core.backends.rollouts import (
    PerNode,
    RolloutMember,
    RolloutOptions,
    RolloutPlan,
    RolloutRequest,
    VersionChange,
    choose_strategy,
    plan_waves,
    resolve_options,
)
from corral.core.nodes.node import NodeId, NodeStatus
from corral.core.nodes.node_class import node_class
from corral.core.nodes.observed import ObservedBackend
from corral.core.sizes import format_bytes
from corral.store.serving.replica_rows import InFlight
from corral.store.serving.replicas import FleetView
from corral.store.stores import Stores


class RolloutPlanner:
    def __init__(self, stores: Stores, defaults: RolloutOptions, in_flight: InFlight) -> None:
        self._stores, self._defaults, self._in_flight = stores, defaults, in_flight

    async def plan(
        self,
        requested: RolloutRequest | None,
        backend: str,
        intents: Sequence[NewIntent],
        states: Iterable[NodeBackends],
        policies: Sequence[Policy],
    ) -> RolloutPlan | None:
        """None without intents. They are those that may change the version: the others begin at once."""
        by_id = {state.node.id: state for state in states}
        changing = [
            (intent, state, found)
            for intent in intents
            if (state := by_id.get(intent.node_id)) is not None and (found := state.find(backend)) is not None
        ]
        if not changing:
            return None
        options = resolve_options(requested, _common_request(changing, policies), self._defaults)
        fleet = await self._stores.replicas.read_fleet(self._in_flight)
        members = [_member(state, found, fleet, options.per_node) for _, state, found in changing]
        strategy = choose_strategy(options, len(members))
        keys = sorted({intent.backend for intent, _, _ in changing})
        specs: dict[str, BackendSpec] = {}
        for key in keys:
            specs.update(await self._stores.intents.find_specs(key))
        return RolloutPlan(
            strategy=strategy,
            options=options,
            waves=plan_waves(members, strategy, options.sizes),
            builds=_changes(changing, specs),
        )


_Changing = Sequence[tuple[NewIntent, NodeBackends, ObservedBackend]]


def _common_request(changing: _Changing, policies: Sequence[Policy]) -> RolloutRequest | None:
    """Of the policy that holds for most of the nodes."""
    found = [
        policy.rollout
        for intent, state, _ in changing
        if (policy := policy_for(state.node, intent.backend, policies)) is not None and policy.rollout is not None
    ]
    return max(found, key=found.count) if found else None


def _member(state: NodeBackends, found: ObservedBackend, fleet: FleetView, per_node: PerNode) -> RolloutMember:
    node = state.node
    here = {replica.id for replica in fleet.replicas if replica.node_id == node.id and replica.backend == found.name}
    method, method_reason = _expected_method(node.id, here, fleet, per_node)
    return RolloutMember(
        node_id=node.id,
        node_name=node.name,
        node_class=node_class(node),
        build=found.name,
        previous_version=found.version,
        previous_digest=found.digest,
        is_healthy=node.status is NodeStatus.HEALTHY,
        serves=bool(here),
        method=method,
        method_reason=method_reason,
    )


def _expected_method(node_id: NodeId, here: set[str], fleet: FleetView, per_node: PerNode) -> tuple[str, str]:
    """With the reason. By the memory that is free now. Placement decides when the time comes."""
    if not here:
        return "", "no replica runs there"
    if per_node is not PerNode.AUTO:
        return per_node.value, "as chosen by the command, its policy or the settings"
    capacity = next((one for one in fleet.capacities if one.id == node_id), None)
    if capacity is None or capacity.free_memory is None:
        return PerNode.ROLLING.value, "its free memory is unknown"
    largest = max((held.memory_bytes or 0 for held in capacity.replicas if held.id in here), default=0)
    need = f"its largest replica needs {format_bytes(largest)}, and {format_bytes(capacity.free_memory)} are free"
    if largest <= capacity.free_memory:
        return PerNode.ROLLING.value, f"memory holds both versions: {need}"
    return PerNode.STOP_FIRST.value, f"memory holds one version: {need}"


def _changes(changing: _Changing, specs: Mapping[str, BackendSpec]) -> tuple[VersionChange, ...]:
    """For each build, and each build that it takes the place of, from the version that most of its nodes have."""
    by_build: dict[tuple[str, str], list[tuple[NewIntent, ObservedBackend]]] = {}
    for intent, _, found in changing:
        by_build.setdefault((intent.spec.build.name or found.name, found.name), []).append((intent, found))
    changes = []
    for (build, _), group in sorted(by_build.items()):
        digests = [found.digest for _, found in group]
        intent, found = max(group, key=lambda one: (digests.count(one[1].digest), one[1].digest))
        changes.append(
            VersionChange(
                build=build,
                version=intent.spec.build.version,
                digest=intent.spec.build.digest,
                previous=previous_spec(intent.backend, found.name, found.version, found.digest, specs),
            )
        )
    return tuple(changes)


def previous_spec(backend: str, build: str, version: str, digest: str, specs: Mapping[str, BackendSpec]) -> BackendSpec:
    """How a node gets the version that it had. `specs`: by digest, those that were installed before."""
    before = specs.get(digest) or BackendSpec(reference=backend)
    known = before.build if before.build.digest else BuildRef()
    return replace(
        before,
        reference=backend,
        build=replace(known, name=build, version=known.version or version, digest=digest),
        force=False,
        pinned=True,
        reason=before.reason or "a rollout went back to it",
    )
