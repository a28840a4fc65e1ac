"""Keeps replicas in their desired state: repairs them by the reports of nodes, scales, moves and replaces them. One
frontend at a time does so, by lease. Every run reads the whole state, so that no lost message matters."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import structlog

from corral.bus.messages import NodeReport
from corral.controller.loads.needs import read_deletes
from corral.controller.loads.ports import Traffic
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.controller.replicas.model_views import ViewBuilder
from corral.controller.replicas.orphan_gc import OrphanCollector
from corral.controller.replicas.stopper import ReplicaStopper
from corral.core.models.load_plan import find_elastic
from corral.core.nodes.labels import effective_labels
from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.observed import ProcessStatus
from corral.core.replicas.endings import plan_ending
from corral.core.replicas.footprints import FootprintKey, Peak, ProcessMemory, plan_peaks
from corral.core.replicas.repair import plan_repair
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.scaling import Add, ScalingPace, ScalingPlan, Scheduling, plan_scaling
from corral.core.replicas.wakeups import CapacityWakeups, Offer, first_check, plan_wake
from corral.store.engine.leases import Lease
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView
from corral.store.stores import Stores
from corral.system import Clock, Ids

log = structlog.get_logger()

LEASE_TTL_S = 15.0
EVERY_S = 2.0
MIN_SPACING_S = 0.1
REBUILD_IF_USED_WITHIN_MS = 30 * 60_000
"""After its node died, a model that no scheduling keeps running is loaded again only if it was used this recently."""


class ReplicaController:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        *,
        stores: Stores,
        stopper: ReplicaStopper,
        traffic: Traffic,
        on_load: Callable[[], None],
        on_change: Callable[[], Awaitable[None]],
        pace: ScalingPace,
        orphans: OrphanCollector,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.loop = Reconciler(
            "replicas",
            self._reconcile,
            runtime,
            every_s=EVERY_S,
            min_spacing_s=MIN_SPACING_S,
            lease_ttl_s=LEASE_TTL_S,
            on_standby=self._stand_by,
        )
        self._stores, self._stopper, self._traffic = stores, stopper, traffic
        self._on_load, self._on_change = on_load, on_change
        self._pace, self._orphans = pace, orphans
        self._clock, self._ids = clock, ids
        self._lease: Lease | None = None
        self._wakeups: CapacityWakeups | None = None
        self._capacities: dict[str, tuple[Node, Offer | None]] = {}
        self._memory: dict[tuple[str, str], ProcessMemory] = {}
        self._peaks: dict[FootprintKey, Peak] = {}
        """As this frontend last wrote them."""

    def _stand_by(self) -> None:
        self._lease, self._memory = None, {}
        self._orphans.note(())

    async def _reconcile(self, run: ReconcileRun) -> None:
        """All writes are made under the lease: they fail once another frontend leads, which has seen newer state."""
        self._lease = run.lease
        seen = await self._stores.load_jobs.read_serving(self._traffic.total)
        fleet, jobs, models, records = seen.fleet, seen.jobs, seen.models, seen.scheduling
        await self._wake_loads(fleet)
        lost = await self._repair(fleet, jobs)
        await self._note_peaks(fleet.replicas, fleet.nodes_by_id, models)
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
        loading = {job.model for job in jobs}
        without_settling = loading | {replica.model for replica in lost}
        for name in sorted({*by_model, *records, *models}):
            await asyncio.sleep(0)  # many models must not delay requests
            model, rows = models.get(name), by_model.get(name, [])
            if model is None or not model.served:
                await self._end(rows, why="its model was deleted or disabled", now_ms=fleet.now_ms)
                continue
            record = records.get(name)
            scheduling = record.scheduling if record is not None else Scheduling(model=name)
            if name not in without_settling:
                await self._settle_pending(model, rows)
            if not rows and (not scheduling.is_managed or model.config.is_attached) and name not in loading:
                continue
            acted_at = record.state.acted_at if record is not None else None
            view = builder.build(model, scheduling, rows, acted_at=acted_at)
            await self._apply(model, plan_scaling(view), known={job.id for job in jobs}, seen_at=fleet.now_ms)
        await self._rebuild(lost, models, {name: record.scheduling for name, record in records.items()})

    # Loads that wait for capacity

    async def _wake_loads(self, fleet: FleetView) -> None:
        """After new nodes, labels, limits or backends, loads that could not be placed are tried again."""
        self._capacities = {node.id: (node, self._capacity_of(node)) for node in fleet.nodes}
        deleted = (await read_deletes(self._stores)).marks()
        capacity = frozenset(
            (found, deleted[""], deleted.get(node.id)) for node, found in self._capacities.values() if found is not None
        )
        now_s = self._clock.monotonic_s()
        if self._wakeups is None:
            self._wakeups = first_check(capacity, now_s=now_s)
            return
        is_time, self._wakeups = plan_wake(self._wakeups, capacity, now_s=now_s, pause_s=self._pace.cool_down_ms / 1000)
        if is_time:
            await self._stores.load_jobs.wake()
            self._on_load()

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
        self._orphans.note(plan.orphans)
        lost = []
        for why in dict.fromkeys(entry.why for entry in plan.lost):
            ids = [entry.replica.id for entry in plan.lost if entry.why == why]
            log.warning("replicas.lost", why=why, models=sorted({e.replica.model for e in plan.lost if e.why == why}))
            lost += await self._stores.replicas.drop(ids, why=why, lease=self._lease)
        if lost:
            await self._on_change()
        return lost

    async def _rebuild(
        self, lost: Sequence[Replica], models: Mapping[str, StoredModel], scheduling: Mapping[str, Scheduling]
    ) -> None:
        """Load again what was in use. Scheduling brings back what it keeps running."""
        now_ms = await self._stores.nodes.now_ms()
        for replica in lost:
            model = models.get(replica.model)
            in_use = now_ms - replica.last_used < REBUILD_IF_USED_WITHIN_MS
            kept = scheduling.get(replica.model)
            is_restored = kept is not None and (kept.min_replicas > 0 or kept.spread_all)
            if model is None or not model.served or is_restored or not in_use:
                continue
            await self._stores.load_jobs.request_load(
                model.name, model.revision, cause="its node was lost", ids=self._ids
            )
            self._on_load()

    # Revisions

    async def _settle_pending(self, model: StoredModel, rows: Sequence[Replica]) -> None:
        """A pending revision that never failed is applied when the model has no replicas: there is nothing to keep."""
        pending, there = model.pending, (ReplicaState.READY, *COMING)
        if pending is None or pending.failures or any(row.state in there for row in rows):
            return
        log.info("models.pending_applied", model=model.name, revision=pending.revision[:12])
        await self._stores.models.apply_pending(model.name, pending.revision, lease=self._lease)
        await self._on_change()

    # Scaling

    async def _apply(self, model: StoredModel, plan: ScalingPlan, *, known: Collection[str], seen_at: int) -> None:
        replicas = self._stores.replicas
        if plan.forget:
            log.info("replicas.loads_forgotten", model=model.name, loads=len(plan.forget))
            await self._stores.load_jobs.delete_obsolete(model.name, plan.forget, seen_at=seen_at, lease=self._lease)
        for revision, adds in _by_revision(model, plan.add):
            made = await self._stores.load_jobs.request_loads(
                model.name, revision, adds, ids=self._ids, known=known, lease=self._lease
            )
            for job in made:
                log.info("replicas.add", model=model.name, why=job.cause)
            if made:
                self._on_load()
        for remove in plan.drain:
            await replicas.drain([remove.replica_id], why=remove.why, lease=self._lease)
        for remove in plan.stop:
            log.info("replicas.stop", model=model.name, why=remove.why)
            await replicas.request_stop([remove.replica_id], why=remove.why, lease=self._lease)
        if plan.by_load:
            await self._stores.scheduling.note_action(model.name)
        if plan.drain or plan.stop:
            self._stopper.loop.notify()
            await self._on_change()

    async def _end(self, rows: Sequence[Replica], *, why: str, now_ms: int) -> None:
        within_ms = self._pace.deleted_drain_ms
        plan = plan_ending(rows, in_flight=self._traffic.total, now_ms=now_ms, within_ms=within_ms)
        if plan.drain:
            await self._stores.replicas.drain(plan.drain, why=why, lease=self._lease)
        if plan.stop:
            await self._stores.replicas.request_stop(plan.stop, why=why, lease=self._lease)
        if plan.drain or plan.stop:
            self._stopper.loop.notify()
            await self._on_change()

    # Memory of processes, from reports

    async def on_report(self, report: NodeReport) -> None:
        """Keep the memory that processes use, for placement, until the next run. Every frontend receives every report;
        only the leader needs them."""
        if self.loop.is_leader:
            self._memory |= {
                (report.node, process.process_key): ProcessMemory(
                    process.memory_bytes,
                    process.gpu_memory_bytes,
                    process.engine.slots if process.engine is not None else None,
                )
                for process in report.processes
                if process.state == ProcessStatus.READY
            }

    async def _note_peaks(
        self, replicas: Sequence[Replica], nodes: Mapping[str, Node], models: Mapping[str, StoredModel]
    ) -> None:
        reported, self._memory = self._memory, {}
        if not reported:
            return
        elastic = {
            (name, one.revision): find_elastic(one.config)
            for name in {replica.model for replica in replicas} & models.keys()
            for one in (models[name], models[name].newest)
        }
        peaks = plan_peaks(replicas, nodes, reported, stored=self._peaks, elastic=elastic)
        if peaks:
            await self._stores.footprints.record_peaks(peaks)
        known = {(row.model, row.revision) for row in replicas}
        kept = {key: peak for key, peak in self._peaks.items() if (key.model, key.revision) in known}
        self._peaks = kept | peaks


def _by_revision(model: StoredModel, adds: Sequence[Add]) -> Iterator[tuple[str, list[Add]]]:
    canaries = [add for add in adds if add.canary]
    others = [add for add in adds if not add.canary]
    if canaries and model.pending is not None:
        yield model.pending.revision, canaries
    if others:
        yield model.revision, others
