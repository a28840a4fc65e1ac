"""`/api/why/backends`: why a backend has this build and this version on each node, and what is not as desired."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Response

from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.backends.slow_builds import SlowBuilds
from corral.controller.backends.upgrades import UpgradeCheck
from corral.core.backends.drift import Drift, DriftCause, FleetSnapshot
from corral.core.backends.explain import BackendContext, ExplainedBackend, explain_backend
from corral.core.backends.planning import NodeBackends, as_known
from corral.core.backends.slow_builds import SlowBuild
from corral.core.causes import brief_cause
from corral.core.errors import NotFound
from corral.core.nodes.targets import find_node
from corral.frontend.http.json_response import MsgspecJson
from corral.store.serving.replacements import ReplacementView
from corral.store.stores import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendExplanation:
    backend: str
    nodes: list[ExplainedBackend]
    slow_builds: list[SlowBuild]
    """Of these nodes."""


def backend_why_routes(
    stores: Stores, policies: PolicyReconciler, upgrades: UpgradeCheck, slow: SlowBuilds
) -> APIRouter:
    router = APIRouter(tags=["backends"])

    @router.get("/api/why/backends/{name:path}", response_model=BackendExplanation)
    async def explain(name: str, node: str | None = None) -> Response:
        """Shows, for each node that has the backend or is to get it, or for one node: why this build and this version,
        whether an upgrade is held back, what an open rollout waits for, why drift is not corrected, and whether an
        accelerator is not used. `name` is a backend, a build or an alias."""
        snapshot = await policies.read_snapshot()
        name = as_known(name, snapshot.states, snapshot.policies).rpartition("@")[2]
        states = _pick(snapshot, name, node)
        offers = await upgrades.read_offers(states)
        drifts = await asyncio.to_thread(snapshot.find_drift)
        context = BackendContext(
            policies=snapshot.policies,
            previews=snapshot.previews,
            requesters=await stores.operations.read_requesters(
                {
                    intent.operation_id
                    for state in states
                    for intent in (*state.newest.values(), *state.restored.values())
                }
            ),
            retry=policies.exhausted_retry,
            replacing=await _read_replacing(stores, states, drifts),
            rollouts=await stores.rollouts.read_open(),
            held=await upgrades.read_held_back(),
            statuses={one.node.id: one.node.status for one in snapshot.states},
            now_ms=await stores.rollouts.now_ms(),
        )
        explained = []
        for state in states:
            key = state.key_of(name)
            here = [one for one in drifts if one.node_id == state.node.id and one.backend == key]
            explained.append(explain_backend(state, name, here, offers.get((key, state.node.id)), context))
        known = {name, *(one.build for one in explained)}
        slow_builds = [
            one
            for one in await slow.read([state.node for state in states])
            if one.backend in known or one.build in known
        ]
        return MsgspecJson(BackendExplanation(backend=name, nodes=explained, slow_builds=slow_builds))

    return router


def _pick(snapshot: FleetSnapshot, name: str, node: str | None) -> list[NodeBackends]:
    """The named node, or all nodes that have the backend, must have it, or must not."""
    by_id = {state.node.id: state for state in snapshot.states}
    if node is not None:
        return [by_id[find_node([state.node for state in snapshot.states], node).id]]
    about = {policy.backend for policy in snapshot.policies}
    found = [
        state
        for state in snapshot.states
        if state.find(name) is not None or state.key_of(name) in state.newest or state.key_of(name) in about
    ]
    if not found:
        raise NotFound(f"no node has the backend {name}, and nobody requested it; list all with `corral backends list`")
    return sorted(found, key=lambda state: state.node.name)


async def _read_replacing(stores: Stores, states: Sequence[NodeBackends], drifts: Sequence[Drift]) -> dict[str, str]:
    """By process key: why a replica of an old version is still there. A process that is no replica of this cluster is
    left alone."""
    ids = {state.node.id for state in states}
    old = [one for one in drifts if one.cause is DriftCause.OLD_PROCESS and one.node_id in ids]
    if not old:
        return {}
    view = await stores.replacements.read(ids)
    return {one.process_key: _why_old(one, view) for one in old}


def _why_old(drift: Drift, view: ReplacementView) -> str:
    replica = next((one for one in view.replicas[drift.node_id] if one.process_key == drift.process_key), None)
    if replica is None:
        return "it is no replica of this cluster: whoever started it has to restart it"
    for job in view.jobs_for.get(replica.id, ()):
        reason = brief_cause(job.last_error) if job.last_error else job.reason
        return f"a load replaces it: {reason or 'in progress'}"
    return f"its replica is {replica.state.value}; it is replaced when one of the installed version serves"
