"""The first step of a load: choose a node and reserve capacity there. Replicas are evicted or stopped if necessary."""

import asyncio
from dataclasses import replace

import structlog

from corral.controller.loads.context import LoadContext
from corral.controller.loads.needs import find_need
from corral.core.backends.rollout import OTHERS_FIRST_REASON, STOP_FIRST_DRAIN_MS, STOP_FIRST_REASON
from corral.core.backends.rollouts import PerNode
from corral.core.errors import Conflict, Fenced, NotFound, Unavailable
from corral.core.nodes.node import Node, NodeStatus
from corral.core.replicas.capacity import device_class
from corral.core.replicas.load_backoff import cause_of
from corral.core.replicas.load_jobs import LOAD_RETRIES, LoadState
from corral.core.replicas.placement import Decision, Need, Placed, Waiting, place, place_instead
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.store.engine.database import StoreConflict
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView

log = structlog.get_logger()

PLACE_TRIES = 16
STOPPED_WITHIN_S = STOP_FIRST_DRAIN_MS / 1000 + 120.0
FREED_WITHIN_S, POLL_S = 15.0, 0.25


async def place_replica(load: LoadContext, model: StoredModel) -> tuple[Replica, Node] | None:
    """Reserves a place. None when there is none now: the job waits, cools down or has failed."""
    job, stores = load.job, load.stores
    if job.replica_id is not None:
        kept = await _kept_place(load)
        if kept is None:
            await load.persist(lambda: load.claims.reschedule(job, again_in_s=0.0))
        return kept
    for _ in range(PLACE_TRIES):
        fleet = await stores.replicas.read_fleet(load.services.traffic.total)
        # Only beside the replica it replaces; once that is gone, it is a replica like any other.
        surge_on = next((replica.node_id for replica in fleet.replicas if replica.id == job.replaces), None)
        need = await find_need(load.services, model, fleet, only_node=job.target_node, surge_on=surge_on)
        need = replace(need, replaces=job.replaces, backoffs=await stores.load_backoff.read(job.model, job.revision))
        decision = await _decide(load, need, fleet)
        need, outcome = decision.need, decision.outcome
        load.need, load.tracker.weights_bytes = need, need.weights_bytes
        if need.instead_of is not None and await load.claims.must_wait_to_stop(job, fleet):
            await _wait(load, decision, OTHERS_FIRST_REASON)
            return None
        if isinstance(outcome, Waiting):
            await _postpone(load, fleet, decision, outcome)
            return None
        try:
            if outcome.evict:
                pending = await _evict(load, decision, outcome.node_id)
                if pending:
                    await _wait(load, decision, pending)
                    return None
                continue
            replica = await _reserve(load, decision)
        except (Fenced, StoreConflict):
            raise
        except Conflict:
            continue
        node = next(node for node in fleet.nodes if node.id == replica.node_id)
        load.tracker.show(LoadState.PENDING, node)
        return replica, node
    raise Unavailable(f"other loads took the capacity for {job.model} {PLACE_TRIES} times; it will be retried")


async def _kept_place(load: LoadContext) -> tuple[Replica, Node] | None:
    """The reservation of an earlier owner of the job, if it is still valid."""
    rows = [row for row in await load.stores.replicas.read_of_model(load.job.model) if row.id == load.job.replica_id]
    if not rows or rows[0].state not in COMING:
        return None
    try:
        node = await load.stores.nodes.read_one(rows[0].node_id)
    except NotFound:
        return None
    return None if node.status is NodeStatus.OFFLINE else (rows[0], node)


async def _decide(load: LoadContext, need: Need, fleet: FleetView) -> Decision:
    """Beside the replica to be replaced where memory allows, otherwise in its place, unless its rollout says which."""
    old = next((row for row in fleet.replicas if row.id == load.job.replaces), None)
    per_node = PerNode.AUTO
    if old is not None:
        per_node = await load.stores.rollouts.read_per_node(old.node_id, old.backend)
    if per_node is PerNode.STOP_FIRST and (instead := _place_instead(load, need, fleet)) is not None:
        return instead
    decision = _place_beside(need, fleet, old) or place(need, fleet.capacities)
    if isinstance(decision.outcome, Waiting) and per_node is not PerNode.ROLLING:
        return _place_instead(load, need, fleet) or decision
    return decision


def _place_beside(need: Need, fleet: FleetView, old: Replica | None) -> Decision | None:
    """On the node of the replica to be replaced, even if another one is idle: a changed version or configuration is
    proven where the change was made, and the weights are there. None where that node may not or cannot hold both."""
    if old is None or need.only_node not in (None, old.node_id):
        return None
    decision = place(replace(need, only_node=old.node_id), fleet.capacities)
    placed = decision.outcome
    if not isinstance(placed, Placed) or placed.evict or need.failures_on(old.node_id):
        return None
    return decision


def _place_instead(load: LoadContext, need: Need, fleet: FleetView) -> Decision | None:
    """Where memory does not hold both, the replica to be replaced is stopped first."""
    old = next((row for row in fleet.replicas if row.id == load.job.replaces), None)
    if old is None or old.state not in (ReplicaState.READY, ReplicaState.DRAINING):
        return None
    return place_instead(need, fleet.capacities, old.id)


async def _reserve(load: LoadContext, decision: Decision) -> Replica:
    total, ids = load.services.traffic.total, load.services.ids
    return await load.persist(lambda: load.claims.reserve(load.job, decision.need, decision, total, ids=ids))


async def _postpone(load: LoadContext, fleet: FleetView, decision: Decision, outcome: Waiting) -> None:
    """No node can take it: the load fails, cools down, or waits for capacity."""
    job, until_ms, reason = load.job, outcome.until_ms, outcome.reason
    scheduling = fleet.scheduling.get(job.model)
    if job.target_node is not None and not (scheduling is not None and scheduling.spread_all):
        # Someone asked for this node and can choose another; a replica for every node is desired permanently.
        log.info("load.rejected", model=job.model, node=job.target_node, why=reason)
        await load.persist(lambda: load.claims.end(job, reason))
    elif until_ms is not None:
        cause = cause_of(decision.need.backoffs.values())
        log.warning("load.failed", model=job.model, error=cause, why=reason)
        await load.persist(lambda: load.claims.cool_down(job, decision, cause, until_ms=until_ms))
    else:
        await _wait(load, decision, reason)


async def _wait(load: LoadContext, decision: Decision, why: str) -> None:
    delay_s = LOAD_RETRIES.delay_s(load.job.attempts + 1, load.services.ids.draw())
    log.info("load.waits", model=load.job.model, why=why, again_in_s=delay_s)
    await load.persist(lambda: load.claims.wait(load.job, decision, why, again_in_s=delay_s))


async def _evict(load: LoadContext, decision: Decision, node_id: str) -> str:
    """Stops the replicas that the decision evicts. Returns why that takes longer; empty when they have ended."""
    stores, total = load.stores, load.services.traffic.total
    began_ms = await stores.nodes.now_ms()
    evicted = await load.persist(lambda: load.claims.evict(load.job, decision.need, decision, total))
    await load.services.notify_changed()
    await load.services.stop_replicas(evicted)
    ids = {row.id for row in evicted}
    left = [row for row in await stores.replicas.read_of_node(node_id) if row.id in ids]
    if left:
        return f"{left[0].model} is being evicted and has not stopped yet: {left[0].stop_error or 'still stopping'}"
    if evicted:
        await _until_heartbeat(load, node_id, since_ms=began_ms)
    return ""


async def _until_heartbeat(load: LoadContext, node_id: str, *, since_ms: int) -> None:
    """A node reports free memory with its heartbeats; Corral's worker does so before it confirms that a process ended.
    By older figures one replica after another would be evicted."""
    until_s = load.services.clock.monotonic_s() + FREED_WITHIN_S
    while load.services.clock.monotonic_s() < until_s:
        try:
            node = await load.stores.nodes.read_one(node_id)
        except NotFound:
            return
        if (node.last_heartbeat or 0) > since_ms:
            return
        await asyncio.sleep(POLL_S)


async def check_fit(load: LoadContext, node: Node) -> bool:
    """The size of a model is known only after its first staging. If it does not fit after all, its place is released
    and it is placed by its size."""
    need, size = load.need, load.tracker.weights_bytes
    if need is None or size is None or need.memory_bytes(device_class(node)) is not None:
        return True
    # It has its place: only its size is in question.
    known = Need(
        model=need.model,
        groups=need.groups,
        weights_bytes=size,
        elastic=need.elastic,
        staged_on=frozenset({node.id}),
        surge_on=need.surge_on,
    )
    why = await load.persist(lambda: load.claims.resize(load.job, known, load.services.traffic.total))
    if why:
        log.info("load.does_not_fit", model=load.job.model, node=node.name, why=why)
        await load.persist(lambda: load.claims.reschedule(load.job, again_in_s=0.0))
    return not why


async def stop_predecessor(load: LoadContext, node: Node) -> None:
    """Where memory holds only one of them, the replica to be replaced finishes its requests and stops. All files are
    staged by now, so requests wait only for the start."""
    job, clock = load.job, load.services.clock
    reserved = load.need is not None and load.need.instead_of is not None
    if job.replaces is None or not (reserved or job.stop_first_node is not None):
        return
    old = await load.persist(lambda: load.claims.stop_first(job, STOP_FIRST_REASON))
    if old is None:
        return
    log.info("load.stops_predecessor", model=job.model, node=node.name, replica=old.id)
    await load.services.notify_changed()
    until_s = clock.monotonic_s() + STOPPED_WITHIN_S
    while left := await load.persist(lambda: _find_predecessor(load, node)):
        load.tracker.show(LoadState.PENDING, node, reason=STOP_FIRST_REASON)
        if clock.monotonic_s() > until_s:
            why = left.stop_error or f"the old replica did not stop within {STOPPED_WITHIN_S:.0f} s"
            raise Unavailable(f"{node.name} has too little memory for the old and new versions of {job.model}: {why}")
        await asyncio.sleep(POLL_S)


async def _find_predecessor(load: LoadContext, node: Node) -> Replica | None:
    rows = await load.stores.replicas.read_of_node(node.id)
    return next((row for row in rows if row.id == load.job.replaces), None)
