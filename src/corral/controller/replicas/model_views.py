"""Builds the view of one model that scaling decides on, from replicas, loads and nodes."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from corral.controller.loads.ports import Traffic
from corral.core.backends.rollout import STOP_FIRST_DRAIN_MS
from corral.core.models.load_plan import family_named_by
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node, NodeStatus, just_left
from corral.core.nodes.observed import ObservedBackend, find_backend, find_moved
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.core.replicas.scaling import Load, ModelView, ReplicaView, ScalingPace, Scheduling, release_leaving
from corral.store.serving.load_job_rows import LoadJob
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView

CHANGED = "its model was changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBuilder:
    fleet: FleetView
    jobs: Sequence[LoadJob]
    backends: Mapping[str, Sequence[ObservedBackend]]
    traffic: Traffic
    pace: ScalingPace

    def build(
        self, model: StoredModel, scheduling: Scheduling, rows: Sequence[Replica], *, acted_at: int | None
    ) -> ModelView:
        now_ms = self.fleet.now_ms
        # A failed load counts as a load until it is due again. Not that of a pending revision: the model has only
        # its previous revision until then.
        jobs = [job for job in self.jobs if job.model == model.name and not self._cools_down(job, model)]
        running = [job for job in jobs if job.active or job.due_at > now_ms]
        taken_over = {job.replaces for job in running}
        stopped_first = frozenset(job.replaces for job in running if job.stop_first_node is not None)
        ids = {row.id for row in rows}
        nodes = self.fleet.nodes_by_id
        cooling_down = any(self._cools_down(job, model) for job in self.jobs)
        canary = None if cooling_down else pick_canary(model, rows, taken_over)
        since = _proven_at(model, rows)
        views = [
            self._replica(
                row,
                nodes[row.node_id],
                model,
                scheduling,
                successor=row.id in taken_over,
                canary=row.id == canary,
                newer_since=since,
            )
            for row in rows
            if row.node_id in nodes
        ]
        views = [
            replace(view, drain_within_ms=STOP_FIRST_DRAIN_MS) if view.id in stopped_first else view for view in views
        ]
        return ModelView(
            scheduling=scheduling,
            matching_nodes=self.fleet.pick_serving(scheduling.selector),
            offline_nodes=self.fleet.offline_nodes,
            replicas=tuple(release_leaving(list(_over_limit(views, nodes)), scheduling)),
            loads=tuple(
                _load(job)
                for job in sorted(running, key=lambda job: (job.created_at, job.ordinal))
                if job.replica_id not in ids
            ),
            failed=tuple(_load(job) for job in jobs if job not in running),
            loads_for_nodes=frozenset(job.target_node for job in running if job.target_node is not None),
            waiting=self.traffic.queue_depth(model.name),
            since_action_ms=now_ms - acted_at if acted_at is not None else None,
            pace=replace(self.pace, idle_ttl_ms=None) if model.config.pinned else self.pace,
        )

    def _replica(
        self,
        row: Replica,
        node: Node,
        model: StoredModel,
        scheduling: Scheduling,
        *,
        successor: bool,
        canary: bool,
        newer_since: int | None,
    ) -> ReplicaView:
        outdated = row.revision != model.revision and newer_since is not None
        return ReplicaView(
            id=row.id,
            node_id=row.node_id,
            slot=row.slot,
            state=row.state.value,
            in_flight=self.traffic.total(row.id),
            idle_ms=self._idle_ms(row),
            why_not=self._why_not(row, node, model, scheduling) or (CHANGED if canary else ""),
            routed=matches(node, scheduling.selector),
            successor=successor,
            canary=canary,
            outdated_ms=self.fleet.now_ms - newer_since if outdated and newer_since is not None else None,
            draining_ms=self.fleet.now_ms - row.changed_at if row.state is ReplicaState.DRAINING else 0,
            unreliable=node.status is not NodeStatus.HEALTHY,
            leaving_ms=self.fleet.now_ms - node.draining_since if node.status is NodeStatus.DRAINING else None,
        )

    def _cools_down(self, job: LoadJob, model: StoredModel) -> bool:
        if model.pending is None or job.model != model.name or job.revision != model.pending.revision:
            return False
        return not job.active and job.due_at > self.fleet.now_ms

    def _idle_ms(self, row: Replica) -> int:
        """Rows learn of requests only every few seconds; frontends know the newer ones."""
        written_ms, heard_s = max(0, self.fleet.now_ms - row.last_used), self.traffic.idle_s(row.id)
        return written_ms if heard_s is None else min(written_ms, int(heard_s * 1000))

    def _why_not(self, row: Replica, node: Node, model: StoredModel, scheduling: Scheduling) -> str:
        if row.revision != model.revision and (row.state not in COMING or model.of_revision(row.revision) is None):
            return CHANGED
        if row.state in COMING:
            return ""
        if node.status is NodeStatus.DRAINING and not just_left(node, now_ms=self.fleet.now_ms):
            return f"its node {node.name} is being drained"
        if not matches(node, scheduling.selector):
            return f"its node {node.name} no longer matches the selector"
        current = find_backend(self.backends.get(node.id, ()), row.backend)
        if current is not None and current.digest and row.backend_digest and current.digest != row.backend_digest:
            return f"{row.backend} was changed on {node.name}"
        family = family_named_by(model.config)
        if row.backend and row.backend != family and node.speaks_corral:
            moved = find_moved(self.backends.get(node.id, ()), family, row.backend)
            if moved is not None:
                return f"{family} is {moved} on {node.name} now"
        return ""


def pick_canary(model: StoredModel, rows: Sequence[Replica], taken_over: Collection[str | None]) -> str | None:
    """The replica beside which a pending revision is tried: one at a time, and always the same one."""
    if model.pending is None or model.pending.held:
        return None
    ready = sorted((row.created_at, row.id) for row in rows if row.state is ReplicaState.READY)
    begun = [identity for _, identity in ready if identity in taken_over]
    return next(iter([*begun, *(identity for _, identity in ready)]), None)


def _proven_at(model: StoredModel, rows: Sequence[Replica]) -> int | None:
    ready = [row.ready_at for row in rows if row.state is ReplicaState.READY and row.revision == model.revision]
    return min((at for at in ready if at is not None), default=None)


def _load(job: LoadJob) -> Load:
    return Load(id=job.id, replaces=job.replaces, node_id=job.target_node, stops_first=job.stop_first_node is not None)


def _over_limit(views: Sequence[ReplicaView], nodes: Mapping[str, Node]) -> Iterator[ReplicaView]:
    """Where a node runs more replicas than its limit, those in the highest slots must go."""
    here: Counter[str] = Counter()
    for view in sorted(views, key=lambda view: view.slot):
        here[view.node_id] += view.serves
        limit = nodes[view.node_id].max_replicas_per_model
        if view.serves and here[view.node_id] > limit:
            yield replace(view, why_not=f"its node {nodes[view.node_id].name} has a limit of {limit}", routed=False)
        else:
            yield view
