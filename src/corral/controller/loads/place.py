"""Where one load gets its place."""

import asyncio
from dataclasses import replace

import structlog

from corral.controller.loads.context import LoadContext, written
from corral.controller.loads.progress import LoadTracker
from corral.core.backends.rollout import OTHERS_FIRST_REASON, STOP_FIRST_DRAIN_MS, STOP_FIRST_REASON
from corral.core.errors import Conflict, Fenced, NotFound, Unavailable
from corral.core.nodes.node import Node, NodeStatus
from corral.core.replicas.capacity import device_class
from corral.core.replicas.load_backoff import cause_of
from corral.core.replicas.load_jobs import LOAD_RETRIES, LoadState
from corral.core.replicas.placement import Decision, Need, Waiting, place, place_instead
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.store.engine.database import StoreConflict
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView

log = structlog.get_logger()

PLACE_TRIES = 16
STOPPED_WITHIN_S = STOP_FIRST_DRAIN_MS / 1000 + 120.0
TOLD_WITHIN_S, TOLD_LOOK_S = 15.0, 0.25


class PlaceReplica:
    def __init__(self, job: LoadJob, tools: LoadContext, headway: LoadTracker) -> None:
        self._job, self._tools, self._headway = job, tools, headway
        self._need: Need | None = None
        """As it was placed; None when an earlier owner of the job did that."""

    async def take(self, model: StoredModel) -> tuple[Replica, Node] | None:
        job, stores = self._job, self._tools.stores
        if job.replica_id is not None:
            kept = await self._kept_place()
            if kept is not None:
                return kept
            await written(job.model, lambda: stores.load_claims.unplace(job, again_in_s=0.0))
            return None
        for _ in range(PLACE_TRIES):
            fleet = await stores.replicas.read_fleet(self._tools.traffic.total)
            need = await self._tools.needs.find(
                model,
                fleet,
                only_node=job.target_node,
                # Only beside the one it takes over from; when that is gone already, it is a replica like any other.
                surge_on=next((replica.node_id for replica in fleet.replicas if replica.id == job.replaces), None),
            )
            need = replace(
                need, replaces=job.replaces, setbacks=await stores.load_backoff.read(job.model, job.revision)
            )
            decision = place(need, fleet.rooms)
            if isinstance(decision.outcome, Waiting):
                decision = self._instead(need, fleet) or decision
            need, outcome = decision.need, decision.outcome
            self._need, self._headway.weights_bytes = need, need.weights_bytes
            if need.instead_of is not None and await stores.load_claims.must_wait_to_stop(job, fleet):
                await self._wait(decision, OTHERS_FIRST_REASON)
                return None
            if isinstance(outcome, Waiting):
                await self._refused(need, fleet, decision, outcome)
                return None
            try:
                if outcome.evict:
                    stuck = await self._evict(need, decision, outcome.node_id)
                    if stuck:
                        await self._wait(decision, stuck)
                        return None
                    continue
                replica = await self._reserve(need, decision)
            except (Fenced, StoreConflict):
                raise
            except Conflict:
                continue
            node = next(node for node in fleet.nodes if node.id == replica.node_id)
            self._headway.show(LoadState.PENDING, node)
            return replica, node
        raise Unavailable(f"the place for {job.model} was taken by others {PLACE_TRIES} times; it is tried again")

    def _instead(self, need: Need, fleet: FleetView) -> Decision | None:
        """Where memory does not hold both, the replica that is to be replaced is stopped first."""
        old = next((row for row in fleet.replicas if row.id == self._job.replaces), None)
        if old is None or old.state not in (ReplicaState.READY, ReplicaState.DRAINING):
            return None
        return place_instead(need, fleet.rooms, old.id)

    async def stop_predecessor(self, node: Node) -> None:
        """Of a place that has room only without the replica it is to replace: that one finishes what it answers,
        takes nothing new, and ends. Everything else is at hand by now, so that requests wait for the start alone."""
        job, stores = self._job, self._tools.stores
        reserved = self._need is not None and self._need.instead_of is not None
        if job.replaces is None or not (reserved or job.stop_first_node is not None):
            return
        old = await written(job.model, lambda: stores.load_claims.stop_first(job, STOP_FIRST_REASON))
        if old is None:
            return
        log.info("load.stops_first", model=job.model, node=node.name, replica=old.id)
        await self._tools.hint()
        until_s = self._tools.clock.monotonic_s() + STOPPED_WITHIN_S
        while left := await written(job.model, lambda: self._predecessor(node)):
            self._headway.show(LoadState.PENDING, node, reason=STOP_FIRST_REASON)
            if self._tools.clock.monotonic_s() > until_s:
                why = left.stop_error or f"it did not end within {STOPPED_WITHIN_S:.0f} s"
                raise Unavailable(f"{node.name} has no memory for the old and the new version of {job.model}: {why}")
            await asyncio.sleep(TOLD_LOOK_S)

    async def _predecessor(self, node: Node) -> Replica | None:
        rows = await self._tools.stores.replicas.read_of_node(node.id)
        return next((row for row in rows if row.id == self._job.replaces), None)

    async def still_fits(self, node: Node) -> bool:
        """The first time a model is loaded its size is known only now. Where it does not fit it gives its place back,
        and is placed by its size."""
        need = self._need
        if need is None or self._headway.weights_bytes is None or need.memory_bytes(device_class(node)) is not None:
            return True
        job, jobs = self._job, self._tools.stores.load_claims
        # It has its place: only its size is in question.
        known = Need(
            model=need.model,
            groups=need.groups,
            weights_bytes=self._headway.weights_bytes,
            staged_on=frozenset({node.id}),
            surge_on=need.surge_on,
        )
        why = await written(job.model, lambda: jobs.enlarge(job, known, self._tools.traffic.total))
        if why:
            log.info("load.does_not_fit", model=job.model, node=node.name, why=why)
            await written(job.model, lambda: jobs.unplace(job, again_in_s=0.0))
        return not why

    async def _kept_place(self) -> tuple[Replica, Node] | None:
        """What an earlier owner of the job reserved, if it still stands."""
        job, stores = self._job, self._tools.stores
        rows = [row for row in await stores.replicas.read_of_model(job.model) if row.id == job.replica_id]
        if not rows or rows[0].state not in COMING:
            return None
        try:
            node = await stores.nodes.read_one(rows[0].node_id)
        except NotFound:
            return None
        if node.status is NodeStatus.OFFLINE:
            return None
        return rows[0], node

    async def _reserve(self, need: Need, decision: Decision) -> Replica:
        claims, traffic, ids = self._tools.stores.load_claims, self._tools.traffic, self._tools.ids
        return await written(self._job.model, lambda: claims.reserve(self._job, need, decision, traffic.total, ids=ids))

    async def _refused(self, need: Need, fleet: FleetView, decision: Decision, outcome: Waiting) -> None:
        """There is no place: whether it waits for one, rests, or is given up."""
        job, claims = self._job, self._tools.stores.load_claims
        until_ms = outcome.until_ms
        if job.target_node is not None and not _is_spread(fleet, job.model):
            log.info("load.refused", model=job.model, node=job.target_node, why=outcome.reason)
            await written(job.model, lambda: claims.give_up(job, outcome.reason))
        elif until_ms is not None:
            why = cause_of(need.setbacks.values())
            log.warning("load.failed", model=job.model, error=why, why=outcome.reason)
            await written(job.model, lambda: claims.rest(job, decision, why, until_ms=until_ms))
        else:
            await self._wait(decision, outcome.reason)

    async def _wait(self, decision: Decision, why: str) -> None:
        job = self._job
        delay_s = LOAD_RETRIES.delay_s(job.attempts + 1, self._tools.ids.draw())
        log.info("load.waits", model=job.model, why=why, again_in_s=delay_s)
        claims = self._tools.stores.load_claims
        await written(job.model, lambda: claims.wait(job, decision, why, again_in_s=delay_s))

    async def _evict(self, need: Need, decision: Decision, node_id: str) -> str:
        """Ends what makes room. Why that takes longer; empty when it is gone."""
        stores = self._tools.stores
        began_ms = await stores.nodes.now_ms()
        total = self._tools.traffic.total
        ending = await written(self._job.model, lambda: stores.load_claims.evict(self._job, need, decision, total))
        await self._tools.hint()
        await self._tools.stop_replicas(ending)
        ids = {row.id for row in ending}
        left = [row for row in await stores.replicas.read_of_node(node_id) if row.id in ids]
        if left:
            why = left[0].stop_error or "it takes its time"
            return f"{left[0].model} makes room for it and has not ended yet: {why}"
        if ending:
            await self._until_told(node_id, since_ms=began_ms)
        return ""

    async def _until_told(self, node_id: str, *, since_ms: int) -> None:
        """A node tells with its heartbeats what is free. One of Corral's does before it says that a process has ended;
        judged by the figures from before, one after the other would have to go."""
        until_s = self._tools.clock.monotonic_s() + TOLD_WITHIN_S
        while self._tools.clock.monotonic_s() < until_s:
            try:
                node = await self._tools.stores.nodes.read_one(node_id)
            except NotFound:
                return
            if (node.last_heartbeat or 0) > since_ms:
                return
            await asyncio.sleep(TOLD_LOOK_S)


def _is_spread(fleet: FleetView, model: str) -> bool:
    """One for each node is wanted for good; else a load for one node is a person's, who is told at once that it
    cannot."""
    wanted = fleet.scheduling.get(model)
    return wanted is not None and wanted.spread_all
