"""Keeps replicas as they are wanted: repaired after what nodes say, scaled, moved, replaced. One frontend at a time, by
lease; every look begins with the whole truth, so nothing depends on a message having arrived."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import structlog

from corral.bus.messages import NodeReport
from corral.controller.loads.needs import read_deletes
from corral.controller.loads.ports import Traffic
from corral.controller.replicas.model_views import ViewBuilder
from corral.controller.replicas.orphan_gc import OrphanCollector
from corral.controller.replicas.stopper import ReplicaStopper
from corral.core.nodes.labels import effective_labels
from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.observed import ProcessStatus
from corral.core.replicas.endings import plan_ending
from corral.core.replicas.footprints import FootprintKey, ProcessMemory, plan_peaks
from corral.core.replicas.repair import plan_repair
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.scaling import Add, ScalingPace, ScalingPlan, Scheduling, plan_scaling
from corral.core.replicas.wakeups import CapacityWakeups, Offer, first_look, plan_wake
from corral.store.engine.leases import Lease
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView
from corral.store.stores import Stores
from corral.system import Clock, Ids
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

LEASE = "replicas"
LEASE_TTL_S = 15.0
LOOK_EVERY_S = 2.0
LOOK_AT_MOST_EVERY_S = 0.1
REBUILD_IF_USED_WITHIN_MS = 30 * 60_000
"""A model that no scheduling keeps running is brought back after its node died only if somebody uses it."""


class ReplicaController:
    def __init__(
        self,
        *,
        holder: str,
        stores: Stores,
        stops: ReplicaStopper,
        traffic: Traffic,
        loads_changed: Callable[[], None],
        hint: Callable[[], Awaitable[None]],
        pace: ScalingPace,
        leftovers: OrphanCollector,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._holder, self._stores, self._stops, self._traffic = holder, stores, stops, traffic
        self._loads_changed, self._hint = loads_changed, hint
        self._pace, self._leftovers = pace, leftovers
        self._clock, self._ids = clock, ids
        self._poked = asyncio.Event()
        self._started = False
        self._lease: Lease | None = None
        self._wakes: CapacityWakeups | None = None
        self._capacities: dict[str, tuple[Node, Offer | None]] = {}
        self._told: dict[tuple[str, str], ProcessMemory] = {}
        self._peaks: dict[FootprintKey, int] = {}
        """As last written by us."""
        self.passes = 0

    def notify(self) -> None:
        self._poked.set()

    @property
    def looks(self) -> bool:
        """This frontend is the one that does."""
        return self._lease is not None

    async def run(self) -> None:
        while True:
            lease = await self._stores.leases.hold(LEASE, self._holder, ttl_s=LEASE_TTL_S, fresh=not self._started)
            self._started = True
            if lease is not None:
                await self.look(lease)
            else:
                self._lease, self._told = None, {}
                self._leftovers.note(())
            await asyncio.sleep(LOOK_AT_MOST_EVERY_S)
            await wait_or_timeout(self._poked, within_s=LOOK_EVERY_S)

    async def look(self, lease: Lease) -> None:
        """What it decides is void when the lease has gone to another meanwhile: that one has seen newer things."""
        self._lease = lease
        fleet = await self._stores.replicas.read_fleet(self._traffic.total)
        jobs = await self._stores.load_jobs.read_all()
        models = {model.name: model for model in await self._stores.models.read_all()}
        await self._wake(fleet)
        lost = await self._repair(fleet, jobs)
        await self._note_peaks(fleet.replicas, fleet.nodes_by_id)
        gone = {replica.id for replica in lost}
        alive = [replica for replica in fleet.replicas if replica.id not in gone]
        by_model: dict[str, list[Replica]] = {}
        for replica in alive:
            by_model.setdefault(replica.model, []).append(replica)
        backends = await self._stores.observed.read_backends({NodeId(replica.node_id) for replica in alive})
        builder = ViewBuilder(
            fleet=fleet,
            jobs=jobs,
            backends={str(node): found for node, found in backends.items()},
            traffic=self._traffic,
            pace=self._pace,
        )
        records = {record.scheduling.model: record for record in await self._stores.scheduling.read_all()}
        loading = {job.model for job in jobs}
        without_settling = loading | {replica.model for replica in lost}
        for name in sorted({*by_model, *records, *models}):
            await asyncio.sleep(0)  # many models with many replicas must not delay requests
            model, rows = models.get(name), by_model.get(name, [])
            if model is None or not model.served:
                await self._end(rows, why="its model was deleted or disabled", now_ms=fleet.now_ms)
                continue
            record = records.get(name)
            scheduling = record.scheduling if record is not None else Scheduling(model=name)
            if name not in without_settling:
                await self._settle_pending(model, rows)
            if not rows and not scheduling.is_managed and name not in loading:
                continue
            acted_at = record.state.acted_at if record is not None else None
            view = builder.build(model, scheduling, rows, acted_at=acted_at)
            await self._apply(model, plan_scaling(view), known={job.id for job in jobs}, seen_at=fleet.now_ms)
        await self._rebuild(lost, models, {name: record.scheduling for name, record in records.items()})
        self.passes += 1

    # What waits for room

    async def _wake(self, fleet: FleetView) -> None:
        """New machines, labels, limits, backends installed again: what could not be placed may be now."""
        self._capacities = {node.id: (node, self._capacity_of(node)) for node in fleet.nodes}
        deleted = (await read_deletes(self._stores)).marks()
        capacity = frozenset(
            (found, deleted[""], deleted.get(node.id)) for node, found in self._capacities.values() if found is not None
        )
        now_s = self._clock.monotonic_s()
        if self._wakes is None:
            self._wakes = first_look(capacity, now_s=now_s)
            return
        is_time, self._wakes = plan_wake(self._wakes, capacity, now_s=now_s, pause_s=self._pace.cool_down_ms / 1000)
        if is_time:
            await self._stores.load_jobs.wake()
            self._loads_changed()

    def _capacity_of(self, node: Node) -> Offer | None:
        known = self._capacities.get(node.id)
        if known is not None and known[0] is node:
            return known[1]
        if node.status is not NodeStatus.HEALTHY:
            return None
        labels = sorted(effective_labels(node).items())
        return (node.id, node.epoch, node.max_replicas_per_model, node.vram_budget, *labels)

    # Repair

    async def _repair(self, fleet: FleetView, jobs: Iterable[LoadJob]) -> list[Replica]:
        tables = await self._stores.observed.read_tables()
        loading = frozenset(
            (job.node_id, f"{job.model}#{job.slot}") for job in jobs if job.node_id is not None and job.slot is not None
        )
        plan = plan_repair(fleet.replicas, fleet.nodes_by_id, tables, loading=loading, now_ms=fleet.now_ms)
        if plan.missed:
            await self._stores.replicas.note_missed(plan.missed, lease=self._lease)
        self._leftovers.note(plan.orphans)
        lost = []
        for why in dict.fromkeys(entry.why for entry in plan.lost):
            ids = [entry.replica.id for entry in plan.lost if entry.why == why]
            log.warning("replicas.lost", why=why, models=sorted({e.replica.model for e in plan.lost if e.why == why}))
            lost += await self._stores.replicas.drop(ids, why=why, lease=self._lease)
        if lost:
            await self._hint()
        return lost

    async def _rebuild(
        self, lost: Sequence[Replica], models: Mapping[str, StoredModel], wanted: Mapping[str, Scheduling]
    ) -> None:
        """Scheduling brings back what it keeps running; of the rest, what is in use."""
        now_ms = await self._stores.nodes.now_ms()
        for replica in lost:
            model = models.get(replica.model)
            in_use = now_ms - replica.last_used < REBUILD_IF_USED_WITHIN_MS
            kept = wanted.get(replica.model)
            is_brought_back = kept is not None and (kept.min_replicas > 0 or kept.spread_all)
            if model is None or not model.served or is_brought_back or not in_use:
                continue
            await self._stores.load_jobs.ask(model.name, model.revision, cause="its node is gone", ids=self._ids)
            self._loads_changed()

    # Revisions

    async def _settle_pending(self, model: StoredModel, rows: Sequence[Replica]) -> None:
        """One that never failed is simply used where the model was unloaded: there is nothing to be proven beside."""
        pending, there = model.pending, (ReplicaState.READY, *COMING)
        if pending is None or pending.failures or any(row.state in there for row in rows):
            return
        log.info("models.pending_applied", model=model.name, revision=pending.revision[:12])
        await self._stores.models.apply_pending(model.name, pending.revision, lease=self._lease)
        await self._hint()

    # Numbers

    async def _apply(self, model: StoredModel, plan: ScalingPlan, *, known: Collection[str], seen_at: int) -> None:
        replicas = self._stores.replicas
        if plan.forget:
            log.info("replicas.loads_forgotten", model=model.name, loads=len(plan.forget))
            await self._stores.load_jobs.forget(model.name, plan.forget, seen_at=seen_at, lease=self._lease)
        for revision, adds in _by_revision(model, plan.add):
            made = await self._stores.load_jobs.ask_more(
                model.name, revision, adds, ids=self._ids, known=known, lease=self._lease
            )
            for job in made:
                log.info("replicas.add", model=model.name, why=job.cause)
            if made:
                self._loads_changed()
        for remove in plan.drain:
            await replicas.drain([remove.replica_id], why=remove.why, lease=self._lease)
        for remove in plan.stop:
            log.info("replicas.stop", model=model.name, why=remove.why)
            await replicas.request_stop([remove.replica_id], why=remove.why, lease=self._lease)
        if plan.by_load:
            await self._stores.scheduling.note_action(model.name)
        if plan.drain or plan.stop:
            self._stops.notify()
            await self._hint()

    async def _end(self, rows: Sequence[Replica], *, why: str, now_ms: int) -> None:
        within_ms = self._pace.deleted_drain_ms
        plan = plan_ending(rows, in_flight=self._traffic.total, now_ms=now_ms, within_ms=within_ms)
        if plan.drain:
            await self._stores.replicas.drain(plan.drain, why=why, lease=self._lease)
        if plan.stop:
            await self._stores.replicas.request_stop(plan.stop, why=why, lease=self._lease)
        if plan.drain or plan.stop:
            self._stops.notify()
            await self._hint()

    # What reports tell beyond the table

    async def hear(self, report: NodeReport) -> None:
        """How much memory processes take, for placement: kept in memory until the next look. Every frontend hears
        every report, and only the one that looks has a use for it."""
        if self.looks:
            self._told |= {
                (report.node, process.process_key): ProcessMemory(process.memory_bytes, process.gpu_memory_bytes)
                for process in report.processes
                if process.state == ProcessStatus.READY
            }

    async def _note_peaks(self, replicas: Sequence[Replica], nodes: Mapping[str, Node]) -> None:
        told, self._told = self._told, {}
        if not told:
            return
        peaks = plan_peaks(replicas, nodes, told, written=self._peaks)
        if peaks:
            await self._stores.footprints.record_peaks(peaks)
        known = {(row.model, row.revision) for row in replicas}
        kept = {key: peak for key, peak in self._peaks.items() if (key.model, key.revision) in known}
        self._peaks = kept | peaks


def _by_revision(model: StoredModel, adds: Sequence[Add]) -> Iterator[tuple[str, list[Add]]]:
    trials = [add for add in adds if add.trial]
    others = [add for add in adds if not add.trial]
    if trials and model.pending is not None:
        yield model.pending.revision, trials
    if others:
        yield model.revision, others
