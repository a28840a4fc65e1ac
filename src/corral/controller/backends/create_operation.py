"""What people ask of the fleet: looked up, decided for each node, and admitted. Carrying it out is another's part."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import msgspec

from corral.controller.backends.resolve import Resolution, Resolver, spec_of
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.operations import Admission, NewIntent
from corral.core.backends.planning import (
    NodeBackends,
    as_known,
    complete_digest,
    find_holds,
    newest_by_node,
    pick_holders,
    pick_upgrades,
    plan_deletes,
    plan_held,
    plan_rollbacks,
    skip_frozen_nodes,
    skip_rolled_back,
)
from corral.core.backends.policies import Ensure, Policy, PolicyChange
from corral.core.backends.requests import RequestedDelete, RequestedInstall, RequestedRollback, RequestedUpgrade
from corral.core.backends.rollout import plan_upgrade
from corral.core.backends.upgrades import Offered, Unknown
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.targets import Skipped, Target, pick_nodes
from corral.store.backends.create_operation import Admitted
from corral.system import Ids

STATES_AT_ONCE = 100
"""Nodes whose rows are read together: a large fleet must not delay requests."""


class Nodes(Protocol):
    async def read_all(self) -> list[Node]: ...


class ObservedBackends(Protocol):
    async def read_backends(self, ids: Iterable[NodeId]) -> dict[NodeId, list[ObservedBackend]]: ...


class Intents(Protocol):
    async def read_newest(self, ids: Iterable[NodeId]) -> list[Intent]: ...

    async def read_restored(self, cancelled: Sequence[Intent]) -> list[Intent]: ...

    async def find_specs(self, backend: str) -> dict[str, BackendSpec]: ...


class Admissions(Protocol):
    async def find(self, idempotency_key: str, request_hash: str) -> Admitted | None: ...

    async def admit(self, admission: Admission) -> Admitted: ...


class Policies(Protocol):
    async def read_all(self) -> list[Policy]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What an operation is to be, before it has an id."""

    backend: str
    orders: Sequence[NewIntent]
    skipped: Sequence[Skipped] = ()
    policy: PolicyChange | None = None
    holds: Sequence[BackendSpec] = ()
    rollout: str = ""


W = TypeVar("W", RequestedInstall, RequestedUpgrade, RequestedDelete, RequestedRollback)


class Fleet:
    def __init__(
        self,
        *,
        nodes: Nodes,
        observed: ObservedBackends,
        intents: Intents,
        policies: Policies,
        admissions: Admissions,
        resolver: Resolver,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._nodes, self._observed, self._intents, self._policies = nodes, observed, intents, policies
        self._admissions, self._resolver, self._ids, self._on_change = admissions, resolver, ids, on_change

    # What people ask for

    async def install(self, wanted: RequestedInstall, *, actor: str, key: str | None = None) -> Admitted:
        """Holds until it is deleted, also on machines that come later, unless nodes were named."""
        return await self._admit(Verb.INSTALL, wanted, self._plan_install, actor=actor, key=key)

    async def upgrade(self, wanted: RequestedUpgrade, *, actor: str, key: str | None = None) -> Admitted:
        """To what the galleries offer now, on the nodes that have it. The old version serves until the new one does."""
        return await self._admit(Verb.UPGRADE, wanted, self._plan_upgrade, actor=actor, key=key)

    async def delete(self, wanted: RequestedDelete, *, actor: str, key: str | None = None) -> Admitted:
        """Holds as well: a node that was away does not bring it back."""
        return await self._admit(Verb.DELETE, wanted, self._plan_delete, actor=actor, key=key)

    async def rollback(self, wanted: RequestedRollback, *, actor: str, key: str | None = None) -> Admitted:
        """To the version before, which is still on the nodes' disks."""
        return await self._admit(Verb.ROLLBACK, wanted, self._plan_rollback, actor=actor, key=key)

    async def _admit(
        self, verb: Verb, wanted: W, plan: Callable[[W], Awaitable[_Plan]], *, actor: str, key: str | None
    ) -> Admitted:
        """Planned and written down, unless the same request came before."""
        mark = _hash(verb, wanted)
        if key is not None and (again := await self._admissions.find(key, mark)) is not None:
            return again
        planned = await plan(wanted)
        admission = Admission(
            id=self._ids.uuid(),
            verb=verb,
            backend=planned.backend,
            reference=wanted.reference or planned.backend,
            target=wanted.target,
            actor=actor,
            orders=tuple(planned.orders),
            skipped=tuple(planned.skipped),
            node_id=wanted.scoped_to,
            policy=planned.policy,
            holds=tuple(planned.holds) if wanted.target.is_lasting else (),
            idempotency_key=key,
            request_hash=mark,
            plan=planned.rollout,
        )
        admitted = await self._admissions.admit(admission)
        await self._on_change()
        return admitted

    # What it means for each node

    async def _plan_install(self, wanted: RequestedInstall) -> _Plan:
        if not wanted.uri and not wanted.galleries:
            await self._resolver.look_up(wanted.reference)
            wanted = replace(wanted, reference=await self._resolver.name_of(wanted.reference))
        backend = plain_name(wanted.reference) if not wanted.uri else wanted.name
        if not backend:
            raise InvalidInput("say what to install: a gallery's name, or a location and a name for it")
        nodes = pick_nodes(await self._nodes.read_all(), wanted.target)
        specs, skipped = await self._wishes(wanted, backend, nodes)
        policy = None
        if wanted.target.is_lasting:
            intended = BackendSpec(
                reference=wanted.reference or backend, name=wanted.name, uri=wanted.uri, alias=wanted.alias,
                galleries=wanted.galleries, force=False,
            )  # fmt: skip
            policy = PolicyChange(
                selector=wanted.target.selector, ensure=Ensure.PRESENT, spec=intended, on_drift=wanted.on_drift
            )
        orders = [_order(node, backend, specs[node.id]) for node in nodes if node.id in specs]
        return _Plan(backend=backend, orders=orders, skipped=skipped, policy=policy)

    async def _plan_upgrade(self, wanted: RequestedUpgrade) -> _Plan:
        targeted = await self.read_targeted(wanted.target)
        reference = as_known(wanted.reference, targeted)
        backend = plain_name(reference)
        states = pick_upgrades(targeted, backend)
        if not states:
            raise NotFound(f"no node has the backend {backend}, so there is nothing to upgrade")
        states, frozen = skip_frozen_nodes(states, backend, await self._policies.read_all())
        if not states:
            raise Conflict(frozen[0].reason)
        await self._resolver.look_again()
        orders, skipped = await self.plan_upgrades(reference, states)
        skipped += frozen
        if wanted.skip_rolled_back:
            orders, spared = skip_rolled_back(orders, states)
            skipped += spared
        rollout = plan_upgrade([order.node_id for order in orders])
        return _Plan(backend=backend, orders=orders, skipped=skipped, rollout=msgspec.json.encode(rollout).decode())

    async def _plan_delete(self, wanted: RequestedDelete) -> _Plan:
        states, policies = await self.read_targeted(wanted.target), await self._policies.read_all()
        backend = plain_name(as_known(wanted.reference, states, policies))
        known = any(policy.backend == backend for policy in policies) or any(
            state.find(backend) or state.newest.get(state.key_of(backend)) or state.told_to_have(backend)
            for state in states
        )
        if not known:
            raise NotFound(f"no node has the backend {backend}, and none was told to have it")
        change = PolicyChange(
            selector=wanted.target.selector, ensure=Ensure.ABSENT, spec=BackendSpec(reference=backend)
        )
        return _Plan(
            backend=backend,
            orders=plan_deletes(states, backend),
            policy=change if wanted.target.is_lasting else None,
        )

    async def _plan_rollback(self, wanted: RequestedRollback) -> _Plan:
        targeted = await self.read_targeted(wanted.target)
        backend = plain_name(as_known(wanted.reference, targeted))
        states = pick_holders(targeted, backend)
        if not states:
            raise NotFound(f"no node has the backend {backend}, so there is nothing to go back from")
        to = complete_digest(wanted.to, states, backend) if wanted.to else None
        specs: dict[str, BackendSpec] = {}
        for name in sorted({state.key_of(backend) for state in states}):
            specs.update(await self._intents.find_specs(name))
        orders, skipped = plan_rollbacks(states, backend, to=to, specs=specs)
        if not orders:
            raise Conflict("; ".join(f"{skip.node_name}: {skip.reason}" for skip in skipped))
        holds = find_holds(orders)
        waiting = plan_held(targeted, backend, holds)
        return _Plan(backend=backend, orders=[*orders, *waiting], skipped=skipped, holds=holds)

    # Parts

    async def read_targeted(self, target: Target) -> list[NodeBackends]:
        nodes = pick_nodes(await self._nodes.read_all(), target)
        return await self.read_states(nodes)

    async def read_states(self, nodes: Sequence[Node]) -> list[NodeBackends]:
        states: list[NodeBackends] = []
        for start in range(0, len(nodes), STATES_AT_ONCE):
            part = nodes[start : start + STATES_AT_ONCE]
            ids = [node.id for node in part]
            observed = await self._observed.read_backends(ids)
            orders = await self._intents.read_newest(ids)
            cancelled = [order for order in orders if order.state is IntentState.CANCELLED]
            restored = newest_by_node(await self._intents.read_restored(cancelled))
            newest = newest_by_node(orders)
            states += [
                NodeBackends(
                    node=node,
                    backends=observed.get(node.id),
                    newest=newest.get(node.id, {}),
                    restored=restored.get(node.id, {}),
                )
                for node in part
            ]
        return states

    async def _wishes(
        self, wanted: RequestedInstall, backend: str, nodes: Sequence[Node]
    ) -> tuple[dict[NodeId, BackendSpec], list[Skipped]]:
        if wanted.galleries:
            # Somebody else's galleries: only the worker looks into them.
            spec = BackendSpec(reference=wanted.reference, galleries=wanted.galleries, force=wanted.force)
            return {node.id: spec for node in nodes}, []
        if wanted.uri:
            found = await self._resolver.resolve_location(wanted.uri, backend, wanted.alias, nodes)
        else:
            found = await self._resolver.resolve(wanted.reference, nodes)
        galleries = "" if wanted.uri else self._resolver.galleries_text()
        by_build = {
            build: spec_of(
                build, reference=wanted.reference or backend, uri=wanted.uri, galleries=galleries, force=wanted.force
            )
            for build in {one for one in found.values() if not isinstance(one, Unfit)}
        }
        specs: dict[NodeId, BackendSpec] = {}
        skipped = []
        for node in nodes:
            resolution = found[node.id]
            if isinstance(resolution, Unfit):
                skipped.append(_skip(node, resolution.reason))
            else:
                specs[node.id] = by_build[resolution]
        return specs, skipped

    async def plan_upgrades(
        self, reference: str, states: Sequence[NodeBackends]
    ) -> tuple[list[NewIntent], list[Skipped]]:
        """Each node gets the newest of the build it has; what came from outside the galleries, from there again."""
        orders: list[NewIntent] = []
        skipped: list[Skipped] = []
        for state, source, resolution in await self._look_up_newest(reference, states):
            if isinstance(resolution, Unresolved):
                raise resolution.error
            if isinstance(resolution, Unfit):
                skipped.append(_skip(state.node, resolution.reason))
                continue
            galleries = "" if source.uri else self._resolver.galleries_text()
            spec = spec_of(resolution, reference=source.reference, uri=source.uri, galleries=galleries)
            order = _order(state.node, state.key_of(plain_name(reference)), spec)
            missing = state.find(plain_name(reference)) is None
            orders.append(replace(order, verb=Verb.INSTALL) if missing else order)
        return orders, skipped

    async def find_offers(self, reference: str, states: Sequence[NodeBackends]) -> dict[NodeId, Offered | Unknown]:
        """What each of these nodes would get by an upgrade, or why nobody can tell."""
        offers: dict[NodeId, Offered | Unknown] = {}
        for state, _, resolution in await self._look_up_newest(reference, states):
            if isinstance(resolution, Unresolved):
                offers[state.node.id] = Unknown(f"its source cannot be asked now: {resolution.error}", passing=True)
            elif isinstance(resolution, Unfit):
                offers[state.node.id] = Unknown(resolution.reason)
            else:
                offers[state.node.id] = Offered(
                    variant=resolution.variant,
                    digest=resolution.digest,
                    version=resolution.version,
                    uris=resolution.uris,
                )
        return offers

    async def _look_up_newest(
        self, reference: str, states: Sequence[NodeBackends]
    ) -> list[tuple[NodeBackends, BackendSpec, Resolution | Unresolved]]:
        """For each node from where it has the backend, and what that is now."""
        found: list[tuple[NodeBackends, BackendSpec, Resolution | Unresolved]] = []
        for source, group in _by_source(reference, states).items():
            try:
                resolved = await self._resolver.resolve_spec_each(source, source.name, [one.node for one in group])
            except NotFound as error:
                found += [(state, source, Unfit(str(error))) for state in group]
                continue
            found += [(state, source, resolved[state.node.id]) for state in group]
        return found


def _by_source(reference: str, states: Iterable[NodeBackends]) -> Mapping[BackendSpec, list[NodeBackends]]:
    """What to ask for on each node."""
    groups: dict[BackendSpec, list[NodeBackends]] = {}
    plain = plain_name(reference)
    for state in states:
        key = state.key_of(plain)
        wanted = state.newest.get(key)
        if wanted is not None and wanted.spec.uri:
            spec = wanted.spec
            source = BackendSpec(reference=key, uri=spec.uri, name=spec.name or key, alias=spec.alias)
        elif wanted is not None and wanted.verb.ensures_presence and reference == plain:
            source = BackendSpec(reference=wanted.spec.reference)
        else:
            source = BackendSpec(reference=reference if key == plain else key)
        groups.setdefault(source, []).append(state)
    return groups


def plain_name(reference: str) -> str:
    """`gallery@name` and `name` are one backend."""
    return reference.rpartition("@")[2]


def _order(node: Node, backend: str, spec: BackendSpec) -> NewIntent:
    return NewIntent(node_id=node.id, node_name=node.name, backend=backend, spec=spec)


def _skip(node: Node, reason: str) -> Skipped:
    return Skipped(node_id=node.id, node_name=node.name, reason=reason)


def _hash(verb: Verb, wanted: object) -> str:
    return hashlib.sha256(verb.value.encode() + msgspec.json.encode(wanted, order="sorted")).hexdigest()
