"""Creates operations: looks the request up, plans an intent for each node and writes them. Others carry them out."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

import msgspec

from corral.controller.backends.fleet_builds import FleetBuilds, FoundVersion, OfferedBuild
from corral.controller.backends.plan_rollout import RolloutPlanner
from corral.controller.backends.resolve import Resolver, source_of, spec_of
from corral.core.backends.build import BuildRef, BuildResolution, ResolvedBackend, plain_name
from corral.core.backends.intents import BackendSpec, IntentState, Verb
from corral.core.backends.operations import Admission, NewIntent
from corral.core.backends.planning import (
    NodeBackends,
    as_known,
    complete_digest,
    describe_rolled_back,
    find_common_specs,
    newest_by_node,
    pick_changing,
    pick_holders,
    pick_upgrades,
    plan_deletes,
    plan_installs,
    plan_pinned,
    plan_rollbacks,
    skip_frozen_nodes,
    skip_pinned,
)
from corral.core.backends.policies import Ensure, PolicyChange
from corral.core.backends.requests import (
    RequestedDelete,
    RequestedFollow,
    RequestedInstall,
    RequestedPin,
    RequestedRollback,
    RequestedUpgrade,
)
from corral.core.backends.rollouts import HeldBack, RolloutPlan, find_held_back
from corral.core.backends.upgrades import Unknown
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.backends.version_pins import PinChange, as_pinned, is_same_version, merge_specs
from corral.core.causes import join_reasons
from corral.core.errors import Conflict, CorralError, InvalidInput, NotFound
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.targets import Skipped, Target, pick_nodes
from corral.store.backends.create_operation import Admitted
from corral.store.stores import Stores
from corral.system import Ids

STATES_AT_ONCE = 100
"""Nodes whose rows are read together, so that a large fleet does not delay requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A planned operation, before it has an id."""

    backend: str
    intents: Sequence[NewIntent]
    skipped: Sequence[Skipped] = ()
    policy: PolicyChange | None = None
    pin: PinChange | None = None
    rollout: RolloutPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPreview:
    """What an operation would do now, by the planning of the operation itself."""

    backend: str
    intents: Sequence[NewIntent]
    skipped: Sequence[Skipped]
    rollout: RolloutPlan | None
    """None if no node changes its version."""

    def spec_of(self, node_id: NodeId) -> BackendSpec | None:
        return next((intent.spec for intent in self.intents if intent.node_id == node_id), None)


W = TypeVar("W", RequestedInstall, RequestedUpgrade, RequestedDelete, RequestedRollback, RequestedPin, RequestedFollow)


class Fleet:
    def __init__(
        self,
        *,
        stores: Stores,
        resolver: Resolver,
        builds: FleetBuilds,
        rollouts: RolloutPlanner,
        ids: Ids,
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        self._stores, self._resolver, self._builds, self._rollouts = stores, resolver, builds, rollouts
        self._ids, self._on_change = ids, on_change

    # Requests

    async def install(self, request: RequestedInstall, *, actor: str, key: str | None = None) -> Admitted:
        """Stays in force until a delete, also on nodes that join later, unless nodes were named."""
        return await self._admit(Verb.INSTALL, request, self._plan_install, actor=actor, key=key)

    async def upgrade(self, request: RequestedUpgrade, *, actor: str, key: str | None = None) -> Admitted:
        """To what the galleries offer now, on nodes that have it. The old version serves until the new one does.
        `name@version` pins that version instead."""
        pin = await self._as_pin(request)
        if pin is not None:
            return await self.pin(pin, actor=actor, key=key)
        return await self._admit(Verb.UPGRADE, request, self._plan_upgrade, actor=actor, key=key)

    async def delete(self, request: RequestedDelete, *, actor: str, key: str | None = None) -> Admitted:
        """Stays in force as well: a node that was offline deletes it when it is back."""
        return await self._admit(Verb.DELETE, request, self._plan_delete, actor=actor, key=key)

    async def rollback(self, request: RequestedRollback, *, actor: str, key: str | None = None) -> Admitted:
        """To the previous version, which is still on the nodes' disks. It stays pinned until `follow`."""
        return await self._admit(Verb.ROLLBACK, request, self._plan_rollback, actor=actor, key=key)

    async def pin(self, request: RequestedPin, *, actor: str, key: str | None = None) -> Admitted:
        """To a version, also on nodes that join later. Nodes with another version change to it."""
        return await self._admit(Verb.PIN, request, self._plan_pin, actor=actor, key=key)

    async def follow(self, request: RequestedFollow, *, actor: str, key: str | None = None) -> Admitted:
        """Ends pins: later installs and upgrades get the newest version again. Changes nothing on the nodes."""
        return await self._admit(Verb.FOLLOW, request, self._plan_follow, actor=actor, key=key)

    async def preview(self, request: RequestedInstall | RequestedUpgrade | RequestedPin) -> OperationPreview:
        """Without creating the operation. Raises what creating it would raise."""
        match request:
            case RequestedInstall():
                planned = await self._plan_install(request)
            case RequestedUpgrade():
                pin = await self._as_pin(request)
                planned = await (self._plan_pin(pin) if pin is not None else self._plan_upgrade(request))
            case RequestedPin():
                planned = await self._plan_pin(request)
            case _:
                assert_never(request)
        return OperationPreview(
            backend=planned.backend, intents=planned.intents, skipped=planned.skipped, rollout=planned.rollout
        )

    async def _as_pin(self, request: RequestedUpgrade) -> RequestedPin | None:
        """An upgrade to `name@version`."""
        reference, version = await self._resolver.split_version(request.reference)
        if not version:
            return None
        return RequestedPin(
            reference=reference,
            version=version,
            target=request.target,
            scoped_to=request.scoped_to,
            rollout=request.rollout,
        )

    async def _admit(
        self, verb: Verb, request: W, plan: Callable[[W], Awaitable[_Plan]], *, actor: str, key: str | None
    ) -> Admitted:
        """Plans and writes the operation, unless the same request came before."""
        mark = _hash(verb, request)
        if key is not None and (again := await self._stores.admission.find(key, mark)) is not None:
            return again
        planned = await plan(request)
        admission = Admission(
            id=self._ids.uuid(),
            verb=verb,
            backend=planned.backend,
            reference=request.reference or planned.backend,
            target=request.target,
            actor=actor,
            intents=tuple(planned.intents),
            skipped=tuple(planned.skipped),
            node_id=request.scoped_to,
            policy=planned.policy,
            pin=planned.pin,
            rollout=planned.rollout,
            idempotency_key=key,
            request_hash=mark,
        )
        admitted = await self._stores.admission.admit(admission)
        await self._on_change()
        return admitted

    # Plans

    async def _plan_install(self, request: RequestedInstall) -> _Plan:
        if not request.uri and not request.galleries:
            await self._resolver.look_up(request.reference)
            reference, version = await self._resolver.split_version(request.reference)
            reference = await self._resolver.name_of(reference)
            request = replace(request, reference=reference, version=request.version or version)
        backend = plain_name(request.reference) if not request.uri else request.name
        if not backend:
            raise InvalidInput("specify what to install: the name of a backend in a gallery, or a location and a name")
        nodes = pick_nodes(await self._stores.nodes.read_all(), request.target)
        specs, skipped, pin = await self._plan_specs(request, backend, nodes)
        policy = None
        if request.target.is_lasting:
            intended = BackendSpec(
                reference=request.reference or backend,
                build=BuildRef(name=request.name, alias=request.alias),
                uri=request.uri,
                galleries=request.galleries,
            )
            policy = PolicyChange(
                selector=request.target.selector,
                ensure=Ensure.PRESENT,
                spec=intended,
                on_drift=request.on_drift,
                rollout=request.rollout,
            )
        if request.version or request.uri:
            await self._refuse_failed((node, specs[node.id]) for node in nodes if node.id in specs)
        states = await self.read_states([node for node in nodes if node.id in specs])
        intents = plan_installs([_new_intent(state.node, backend, specs[state.node.id]) for state in states], states)
        policies = await self._stores.policies.read_all()
        changing = pick_changing(intents, states, backend, Verb.INSTALL)
        rollout = await self._rollouts.plan(request.rollout, backend, changing, states, policies)
        return _Plan(backend=backend, intents=intents, skipped=skipped, policy=policy, pin=pin, rollout=rollout)

    async def _plan_upgrade(self, request: RequestedUpgrade) -> _Plan:
        targeted = await self.read_targeted(request.target)
        reference = as_known(request.reference, targeted)
        backend = plain_name(reference)
        states = pick_upgrades(targeted, backend)
        if not states:
            raise NotFound(f"no node has the backend {backend}; there is nothing to upgrade")
        policies = await self._stores.policies.read_all()
        states, frozen = skip_frozen_nodes(states, backend, policies)
        pin = PinChange(follows=True, reason="upgraded") if request.unpin else None
        states, pinned = (states, []) if request.unpin else skip_pinned(states, backend)
        if not states:
            raise Conflict((frozen + pinned)[0].reason)
        await self._resolver.look_again()
        intents, skipped = await self.plan_upgrades(reference, states)
        intents, held_back = self._skip_held_back(intents, states, await self._stores.rollouts.read_held_back())
        if held_back and not intents:
            raise Conflict(held_back[0].reason)
        changing = pick_changing(intents, states, backend, Verb.UPGRADE)
        rollout = await self._rollouts.plan(request.rollout, backend, changing, states, policies)
        skipped += frozen + pinned + held_back
        return _Plan(backend=_key_in(states, backend), intents=intents, skipped=skipped, pin=pin, rollout=rollout)

    async def _plan_delete(self, request: RequestedDelete) -> _Plan:
        states, policies = await self.read_targeted(request.target), await self._stores.policies.read_all()
        backend = plain_name(as_known(request.reference, states, policies))
        known = any(policy.backend == backend for policy in policies) or any(
            state.find(backend) or state.newest.get(state.key_of(backend)) or state.presence_intent(backend)
            for state in states
        )
        if not known:
            raise NotFound(f"no node has the backend {backend}, and no install of it was requested")
        change = PolicyChange(
            selector=request.target.selector, ensure=Ensure.ABSENT, spec=BackendSpec(reference=backend)
        )
        return _Plan(
            backend=backend,
            intents=plan_deletes(states, backend),
            policy=change if request.target.is_lasting else None,
        )

    async def _plan_rollback(self, request: RequestedRollback) -> _Plan:
        targeted = await self.read_targeted(request.target)
        backend = plain_name(as_known(request.reference, targeted))
        states = pick_holders(targeted, backend)
        if not states:
            raise NotFound(f"no node has the backend {backend}; there is nothing to roll back")
        specs: dict[str, BackendSpec] = {}
        for name in sorted({state.key_of(backend) for state in states}):
            specs.update(await self._stores.intents.find_specs(name))
        intents, skipped = plan_rollbacks(
            states, backend, to=_digests_of(request.to, states, backend, specs) if request.to else None, specs=specs
        )
        if not intents:
            raise Conflict(join_reasons(f"{skip.node_name}: {skip.reason}" for skip in skipped))
        if request.to:
            nodes = {state.node.id: state.node for state in states}
            await self._refuse_failed((nodes[intent.node_id], intent.spec) for intent in intents)
        common, key = find_common_specs(intents), _key_in(states, backend)
        waiting, _ = plan_pinned([state for state in targeted if state.find(backend) is None], backend, common)
        versions = {spec.build.version for spec in common}
        version = versions.pop() if len(versions) == 1 else ""
        pin = PinChange(
            version=version,
            specs=tuple(common) if version else await self._with_earlier(key, request.target, common),
            reason=request.reason or describe_rolled_back(states, backend, intents),
        )
        return _Plan(backend=key, intents=[*intents, *waiting], skipped=skipped, pin=pin)

    async def _plan_pin(self, request: RequestedPin) -> _Plan:
        targeted, policies = await self.read_targeted(request.target), await self._stores.policies.read_all()
        reference = as_known(request.reference, targeted, policies)
        backend = plain_name(reference)
        states = pick_upgrades(targeted, backend)
        if not states and not any(policy.backend == backend for policy in policies):
            raise NotFound(
                f"no node has the backend {backend}; install the version with"
                f" `corral backends install {backend}@{request.version}`"
            )
        states, frozen = skip_frozen_nodes(states, backend, policies)
        found = await self._find_version(request.version, reference, backend, states or targeted)
        specs = found.specs.values()
        intents, skipped = plan_pinned(states, backend, specs)
        skipped += frozen + _skip_without_version(states, backend, found)
        key = _key_in(states, backend)
        pin = PinChange(
            version=found.version,
            specs=tuple(specs) if found.version else await self._with_earlier(key, request.target, specs),
            reason=request.reason,
        )
        await self._refuse_failed((state.node, spec) for state in states for spec in specs)
        changing = pick_changing(intents, states, backend, Verb.PIN)
        rollout = await self._rollouts.plan(request.rollout, backend, changing, states, policies)
        return _Plan(backend=key, intents=intents, skipped=skipped, pin=pin, rollout=rollout)

    async def _refuse_failed(self, requested: Iterable[tuple[Node, BackendSpec]]) -> None:
        """Raises Conflict if a person names a version that failed in a rollout on one of these nodes."""
        failed = [one for one in await self._stores.rollouts.read_held_back() if one.failed]
        for node, spec in requested if failed else ():
            bad = find_held_back(node, {spec.build.name: spec}, failed)
            if bad is not None:
                raise Conflict(bad.describe())

    def _skip_held_back(
        self, intents: Sequence[NewIntent], states: Sequence[NodeBackends], held: Sequence[HeldBack]
    ) -> tuple[list[NewIntent], list[Skipped]]:
        """Skips nodes for which the version failed in a rollout."""
        nodes = {state.node.id: state.node for state in states}
        failed = [one for one in held if one.failed]
        kept, skipped = [], []
        for intent in intents:
            node = nodes[intent.node_id]
            bad = find_held_back(node, {intent.spec.build.name: intent.spec}, failed)
            if bad is None:
                kept.append(intent)
            else:
                skipped.append(_skip(node, bad.describe()))
        return kept, skipped

    async def _plan_follow(self, request: RequestedFollow) -> _Plan:
        targeted, policies = await self.read_targeted(request.target), await self._stores.policies.read_all()
        backend = plain_name(as_known(request.reference, targeted, policies))
        key = _key_in(pick_upgrades(targeted, backend), backend)
        pins = [pin for pin in await self._stores.version_pins.read_all() if pin.is_about(key, backend)]
        if not any(not pin.follows for pin in pins):
            raise Conflict(f"{backend} is not pinned; it already follows the galleries")
        return _Plan(backend=pins[-1].backend, intents=(), pin=PinChange(follows=True, reason=request.reason))

    async def _with_earlier(
        self, backend: str, target: Target, specs: Iterable[BackendSpec]
    ) -> tuple[BackendSpec, ...]:
        """These, and what an older pin of the same target says about other builds."""
        pins = await self._stores.version_pins.read_all()
        older = [pin for pin in pins if pin.backend == backend and pin.target == target and not pin.follows]
        return merge_specs(older[-1].specs if older else (), specs)

    async def _find_version(
        self, given: str, reference: str, backend: str, states: Sequence[NodeBackends]
    ) -> FoundVersion:
        """The version of every build that these nodes have or would get."""
        offered: dict[str, OfferedBuild] = {}
        problem: CorralError = NotFound(f"no build of {backend} fits any of the nodes")
        for source, group in _by_source(reference, states).items():
            found = await self._resolver.recall_spec(source, source.build.name, [state.node for state in group])
            for state in group:
                resolved, there = found[state.node.id], state.effective_intent(backend)
                if isinstance(resolved, ResolvedBackend):
                    offered[resolved.build.name] = OfferedBuild(source, resolved)
                elif isinstance(resolved, Unresolved):
                    problem = resolved.error
                    if there is not None and there.spec.build.uris:
                        known = ResolvedBackend(build=there.spec.build, reason=there.spec.reason)
                        offered[there.spec.build.name] = OfferedBuild(source, known)
        if not offered:
            raise problem
        return await self._builds.find_version(given, backend=backend, offered=offered, states=states)

    # Reads and lookups

    async def read_targeted(self, target: Target) -> list[NodeBackends]:
        """The nodes that the target selects, with their backends and intents."""
        nodes = pick_nodes(await self._stores.nodes.read_all(), target)
        return await self.read_states(nodes)

    async def read_states(self, nodes: Sequence[Node]) -> list[NodeBackends]:
        states: list[NodeBackends] = []
        pins, held = await self._stores.version_pins.read_all(), await self._stores.rollouts.read_held_back()
        for start in range(0, len(nodes), STATES_AT_ONCE):
            part = nodes[start : start + STATES_AT_ONCE]
            ids = [node.id for node in part]
            observed = await self._stores.observed.read_backends(ids)
            intents = await self._stores.intents.read_newest(ids)
            cancelled = [intent for intent in intents if intent.state is IntentState.CANCELLED]
            restored = newest_by_node(await self._stores.intents.read_restored(cancelled))
            newest = newest_by_node(intents)
            states += [
                NodeBackends(
                    node=node,
                    backends=observed.get(node.id),
                    newest=newest.get(node.id, {}),
                    restored=restored.get(node.id, {}),
                    pins=pins,
                    held=held,
                )
                for node in part
            ]
        return states

    async def _plan_specs(
        self, request: RequestedInstall, backend: str, nodes: Sequence[Node]
    ) -> tuple[dict[NodeId, BackendSpec], list[Skipped], PinChange | None]:
        if request.galleries:
            # Foreign galleries: only the worker looks into them.
            spec = BackendSpec(reference=request.reference, galleries=request.galleries, force=request.force)
            return {node.id: spec for node in nodes}, [], None
        pin = None
        if request.uri:
            # Another source: what was pinned came from the one before.
            found = await self._resolver.resolve_location(request.uri, backend, request.alias, nodes)
            pin = (
                PinChange(follows=True, reason=f"installed from {request.uri}")
                if await self._is_pinned(backend)
                else None
            )
        else:
            found = await self._resolver.resolve(request.reference, nodes)
        if request.version:
            return await self._plan_versions(request, backend, nodes, found)
        if not request.uri:
            source = BackendSpec(reference=request.reference)
            found = _without_unresolved(await self._builds.in_desired_version(source, backend, nodes, found))
        galleries = "" if request.uri else self._resolver.galleries_text(request.reference)
        specs_by_build = {
            resolved: spec_of(
                resolved,
                reference=request.reference or backend,
                uri=request.uri,
                galleries=galleries,
                force=request.force,
            )
            for resolved in {one for one in found.values() if not isinstance(one, Unfit)}
        }
        specs: dict[NodeId, BackendSpec] = {}
        skipped = []
        for node in nodes:
            resolution = found[node.id]
            if isinstance(resolution, Unfit):
                skipped.append(_skip(node, resolution.reason))
            else:
                specs[node.id] = specs_by_build[resolution]
        return specs, skipped, pin

    async def _is_pinned(self, backend: str) -> bool:
        return any(pin.backend == backend for pin in await self._stores.version_pins.read_all())

    async def _plan_versions(
        self, request: RequestedInstall, backend: str, nodes: Sequence[Node], found: Mapping[NodeId, BuildResolution]
    ) -> tuple[dict[NodeId, BackendSpec], list[Skipped], PinChange]:
        """An install of one version, which pins it."""
        source = BackendSpec(reference=request.reference)
        offered = {
            one.build.name: OfferedBuild(source, one) for one in found.values() if isinstance(one, ResolvedBackend)
        }
        if not offered:
            raise NotFound(f"no build of {backend} fits any of the nodes, so there is no version to pin")
        version = await self._builds.find_version(
            request.version,
            backend=backend,
            offered=offered,
            states=await self.read_states(nodes),
        )
        specs: dict[NodeId, BackendSpec] = {}
        skipped = []
        for node in nodes:
            resolution = found[node.id]
            build = resolution.build.name if isinstance(resolution, ResolvedBackend) else ""
            if isinstance(resolution, Unfit):
                skipped.append(_skip(node, resolution.reason))
            elif not node.speaks_corral:
                skipped.append(_skip(node, "a LocalAI worker installs only the version that its gallery offers"))
            elif build in version.specs:
                spec = as_pinned(version.specs[build], request.reference)
                specs[node.id] = replace(spec, force=request.force)
            else:
                skipped.append(
                    _skip(node, version.problems.get(build, f"{request.version} is a version of other builds"))
                )
        return specs, skipped, PinChange(version=version.version, specs=tuple(version.specs.values()))

    async def plan_upgrades(
        self, reference: str, states: Sequence[NodeBackends]
    ) -> tuple[list[NewIntent], list[Skipped]]:
        """Each node gets the newest version of its build, from the source it was installed from."""
        intents: list[NewIntent] = []
        skipped: list[Skipped] = []
        for state, source, resolved in await self._look_up_newest(reference, states):
            if isinstance(resolved, Unresolved):
                raise resolved.error
            if isinstance(resolved, Unfit):
                skipped.append(_skip(state.node, resolved.reason))
                continue
            galleries = "" if source.uri else self._resolver.galleries_text(source.reference)
            spec = spec_of(resolved, reference=source.reference, uri=source.uri, galleries=galleries)
            intent = _new_intent(state.node, state.key_of(plain_name(reference)), spec)
            missing = state.find(plain_name(reference)) is None
            intents.append(replace(intent, verb=Verb.INSTALL) if missing else intent)
        return intents, skipped

    async def find_offers(self, reference: str, states: Sequence[NodeBackends]) -> dict[NodeId, BuildRef | Unknown]:
        """The build that an upgrade would install on each node, or why that is unknown."""
        offers: dict[NodeId, BuildRef | Unknown] = {}
        for state, _, resolved in await self._look_up_newest(reference, states):
            if isinstance(resolved, Unresolved):
                offers[state.node.id] = Unknown(f"its source cannot be reached: {resolved.error}", transient=True)
            elif isinstance(resolved, Unfit):
                offers[state.node.id] = Unknown(resolved.reason)
            else:
                offers[state.node.id] = resolved.build
        return offers

    async def _look_up_newest(
        self, reference: str, states: Sequence[NodeBackends]
    ) -> list[tuple[NodeBackends, BackendSpec, BuildResolution | Unresolved]]:
        """For each node: the source of its backend, and what that resolves to now."""
        found: list[tuple[NodeBackends, BackendSpec, BuildResolution | Unresolved]] = []
        for source, group in _by_source(reference, states).items():
            try:
                resolved = await self._resolver.resolve_spec_each(
                    source, source.build.name, [one.node for one in group]
                )
            except NotFound as error:
                found += [(state, source, Unfit(str(error))) for state in group]
                continue
            found += [(state, source, resolved[state.node.id]) for state in group]
        return found


def _by_source(reference: str, states: Iterable[NodeBackends]) -> Mapping[BackendSpec, list[NodeBackends]]:
    """The spec to look up, with the nodes it is for."""
    groups: dict[BackendSpec, list[NodeBackends]] = {}
    plain = plain_name(reference)
    for state in states:
        key = state.key_of(plain)
        newest = state.newest.get(key)
        if newest is not None and newest.spec.uri:
            source = replace(source_of(newest.spec, key), reference=key)
        elif newest is not None and newest.verb.ensures_presence and reference == plain:
            source = BackendSpec(reference=newest.spec.reference)
        else:
            source = BackendSpec(reference=reference if key == plain else key)
        groups.setdefault(source, []).append(state)
    return groups


def _without_unresolved(found: Mapping[NodeId, BuildResolution | Unresolved]) -> dict[NodeId, BuildResolution]:
    """A node whose pinned version cannot be found is skipped, with the reason."""
    return {node_id: Unfit(str(one.error)) if isinstance(one, Unresolved) else one for node_id, one in found.items()}


def _key_in(states: Iterable[NodeBackends], backend: str) -> str:
    """The name that the backend's intents have on these nodes, if it is the same on all."""
    keys = {state.key_of(backend) for state in states}
    return keys.pop() if len(keys) == 1 else backend


def _digests_of(
    given: str, states: Sequence[NodeBackends], backend: str, specs: Mapping[str, BackendSpec]
) -> frozenset[str]:
    """The digests of a version that is given by its number, or by the beginning of a digest."""
    numbered = {digest for digest, spec in specs.items() if is_same_version(given, spec.build.version)}
    return frozenset(numbered or {complete_digest(given, states, backend)})


def _skip_without_version(states: Iterable[NodeBackends], backend: str, found: FoundVersion) -> list[Skipped]:
    return [
        _skip(state.node, found.problems[there.name])
        for state in states
        if (there := state.find(backend)) is not None and there.name in found.problems
    ]


def _new_intent(node: Node, backend: str, spec: BackendSpec) -> NewIntent:
    return NewIntent(node_id=node.id, node_name=node.name, backend=backend, spec=spec)


def _skip(node: Node, reason: str) -> Skipped:
    return Skipped(node_id=node.id, node_name=node.name, reason=reason)


def _hash(verb: Verb, request: object) -> str:
    """Identifies the request, so that a repeated idempotency key with another one is rejected."""
    return hashlib.sha256(verb.value.encode() + msgspec.json.encode(request, order="sorted")).hexdigest()
