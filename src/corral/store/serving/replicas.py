"""Replicas: routes to them, their state, and how they stop."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from corral.core.nodes.engine_capacity import EngineCapacity, open_limit
from corral.core.nodes.node import Node, NodeStatus
from corral.core.nodes.observed import ProcessStatus
from corral.core.nodes.targets import pick_serving
from corral.core.processes.leases import NodeShare
from corral.core.replicas.attached import AttachedEndpoint
from corral.core.replicas.availability import AvailabilityVerdict, ClusterSnapshot, is_another, pick_routed
from corral.core.replicas.placement import NodeCapacity
from corral.core.replicas.replica import Replica, ReplicaState
from corral.core.replicas.routing import ModelRoute, ReplicaId, RoutePolicy, RouteReplica, RouteSnapshot
from corral.core.replicas.scaling import Scheduling
from corral.store.access.audit_events import append_event
from corral.store.backends.observed import read_tables
from corral.store.engine.counters import ROUTES, bump_counter, read_counter
from corral.store.engine.database import Database, Tx
from corral.store.engine.leases import Lease, check_held
from corral.store.nodes.node_rows import SELECT_NODE, read_node_row, store_now_ms
from corral.store.serving.attached_endpoints import as_replicas, read_endpoints, route_endpoints
from corral.store.serving.load_backoff import wake_loads
from corral.store.serving.models import StoredModel, read_served_models
from corral.store.serving.public_route_rows import read_public_routes
from corral.store.serving.replica_rows import (
    InFlight,
    capacity_of_node,
    lock_replicas,
    read_groups,
    read_pinned,
    read_replicas,
    set_states,
)
from corral.store.serving.revoked_processes import read_shares, record_revoked
from corral.store.serving.scheduling import read_all_scheduling

STOP_LEASE_MS = 45_000


async def read_nodes(tx: Tx) -> list[Node]:
    return [read_node_row(row) for row in await tx.fetch(f"{SELECT_NODE} WHERE removed_at IS NULL ORDER BY name")]


async def read_cluster(tx: Tx) -> ClusterSnapshot:
    nodes: dict[str, Node] = {node.id: node for node in await read_nodes(tx)}
    return ClusterSnapshot(nodes=nodes, tables=await read_tables(tx), now_ms=await store_now_ms(tx))


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica, its availability if it is ready, and what its engine takes if that is known."""

    row: Replica
    verdict: AvailabilityVerdict | None
    engine: EngineCapacity | None = None


@dataclass(frozen=True, kw_only=True)
class FleetView:
    """Nodes, replicas and scheduling, read in one snapshot."""

    now_ms: int
    nodes: tuple[Node, ...]
    replicas: tuple[Replica, ...]
    scheduling: Mapping[str, Scheduling]
    groups: Mapping[str, frozenset[str]]
    pinned: frozenset[str]
    in_flight: InFlight

    @cached_property
    def nodes_by_id(self) -> Mapping[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def offline_nodes(self) -> frozenset[str]:
        """Ids of nodes that are unhealthy or offline."""
        statuses = (NodeStatus.UNHEALTHY, NodeStatus.OFFLINE)
        return frozenset(node.id for node in self.nodes if node.status in statuses)

    def pick_serving(self, selector: Mapping[str, str]) -> tuple[str, ...]:
        """Ids of nodes that may run replicas with this selector. Cached, because most models share one selector."""
        key = frozenset(selector.items())
        if key not in self._serving:
            self._serving[key] = tuple(node.id for node in pick_serving(self.nodes, selector))
        return self._serving[key]

    @cached_property
    def _serving(self) -> dict[frozenset[tuple[str, str]], tuple[str, ...]]:
        return {}

    @cached_property
    def capacities(self) -> tuple[NodeCapacity, ...]:
        """Computed on first use, because only placement needs it."""
        healthy = {node.id for node in self.nodes if node.status is NodeStatus.HEALTHY}
        ready = Counter(
            replica.model
            for replica in self.replicas
            if replica.state is ReplicaState.READY and replica.node_id in healthy
        )

        def spare(replica: Replica) -> int:
            scheduling = self.scheduling.get(replica.model) or Scheduling(model=replica.model)
            must_stay = scheduling.spread_all or replica.model in self.pinned
            return 0 if must_stay else ready[replica.model] - scheduling.min_replicas

        by_node: dict[str, list[Replica]] = {}
        for replica in self.replicas:
            by_node.setdefault(replica.node_id, []).append(replica)
        return tuple(
            capacity_of_node(
                node,
                by_node.get(node.id, ()),
                now_ms=self.now_ms,
                in_flight=self.in_flight,
                groups=self.groups,
                spare=spare,
            )
            for node in self.nodes
        )


async def read_fleet(tx: Tx, in_flight: InFlight) -> FleetView:
    nodes, replicas = await read_nodes(tx), await read_replicas(tx)
    scheduling = {record.scheduling.model: record.scheduling for record in await read_all_scheduling(tx)}
    return FleetView(
        now_ms=await store_now_ms(tx),
        nodes=tuple(nodes),
        replicas=tuple(replicas),
        scheduling=scheduling,
        groups=await read_groups(tx),
        pinned=await read_pinned(tx),
        in_flight=in_flight,
    )


class ReplicaStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # Routes

    async def read_version(self) -> int:
        async def body(tx: Tx) -> int:
            return await read_counter(tx, ROUTES)

        return await self._database.read(body)

    async def read_routes(self) -> RouteSnapshot:
        async def body(tx: Tx) -> RouteSnapshot:
            version = await read_counter(tx, ROUTES)
            models = await read_served_models(tx)
            cluster = await read_cluster(tx)
            records = {record.scheduling.model: record.scheduling for record in await read_all_scheduling(tx)}
            by_model: dict[str, list[Replica]] = {}
            for replica in await read_replicas(tx, "WHERE state = 'ready'"):
                by_model.setdefault(replica.model, []).append(replica)
            attached = await _read_attached(tx)
            routes = tuple(
                _route(
                    model,
                    by_model.get(model.name, []),
                    cluster,
                    records.get(model.name),
                    attached=attached.get(model.name, []),
                )
                for model in models
            )
            return RouteSnapshot(version=version, routes=routes, public=tuple(await read_public_routes(tx)))

        return await self._database.read(body)

    async def read_shares(self) -> tuple[int, Mapping[str, NodeShare]]:
        """The change counter of routes, and by node the processes it should run."""

        async def body(tx: Tx) -> tuple[int, Mapping[str, NodeShare]]:
            return await read_counter(tx, ROUTES), await read_shares(tx)

        return await self._database.read(body)

    # Reading

    async def read_all(self) -> list[Replica]:
        async def body(tx: Tx) -> list[Replica]:
            return await read_replicas(tx)

        return await self._database.read(body)

    async def read_of_node(self, node_id: str) -> list[Replica]:
        async def body(tx: Tx) -> list[Replica]:
            return await read_replicas(tx, "WHERE node_id = $1", node_id)

        return await self._database.read(body)

    async def read_of_model(self, model: str) -> list[Replica]:
        async def body(tx: Tx) -> list[Replica]:
            return await read_replicas(tx, "WHERE model = $1", model)

        return await self._database.read(body)

    async def read_statuses(self) -> list[ReplicaStatus]:
        """All replicas, sorted by model and node, with attached endpoints after them."""

        async def body(tx: Tx) -> list[ReplicaStatus]:
            cluster = await read_cluster(tx)
            started = [
                ReplicaStatus(
                    row, cluster.judge(row) if row.state is ReplicaState.READY else None, cluster.engine_of(row)
                )
                for row in await read_replicas(tx)
            ]
            attached = [one for found in (await _read_attached(tx)).values() for one in as_replicas(found)]
            return [*started, *(ReplicaStatus(row, verdict) for row, verdict in attached)]

        return await self._database.read(body)

    async def read_nodes_to_refresh(self) -> list[str]:
        """Nodes on which the process of a ready replica, or its worker, has restarted. The processes of a LocalAI
        worker end with it, and have no other token."""

        async def body(tx: Tx) -> list[str]:
            tables = await read_tables(tx)
            keyless = {row["id"] for row in await tx.fetch("SELECT id FROM nodes WHERE key_hash IS NULL")}
            found = set()
            for row in await read_replicas(tx, "WHERE state = 'ready'"):
                table = tables.get(row.node_id) if row.node_id not in keyless else None
                process = table.find(row.process_key) if table is not None else None
                if table is None or process is None or process.state != ProcessStatus.READY:
                    continue
                if is_another(row, process) or row.epoch != table.epoch:
                    found.add(row.node_id)
            return sorted(found)

        return await self._database.read(body)

    async def read_fleet(self, in_flight: InFlight) -> FleetView:
        async def body(tx: Tx) -> FleetView:
            return await read_fleet(tx, in_flight)

        return await self._database.read(body)

    async def touch(self, ages_ms: Mapping[ReplicaId, int]) -> None:
        async def body(tx: Tx) -> None:
            now = await store_now_ms(tx)
            used = [(identity, now - age_ms) for identity, age_ms in sorted(ages_ms.items())]
            await tx.execute_many("UPDATE replicas SET last_used = $2 WHERE id = $1 AND last_used < $2", used)
            await tx.execute_many("UPDATE attached_endpoints SET last_used = $2 WHERE id = $1 AND last_used < $2", used)

        if ages_ms:
            await self._database.write(body)

    # Ending

    async def drain(self, ids: Collection[str], *, why: str, lease: Lease | None = None) -> None:
        """Route no new requests to these replicas. `lease`, here and below: raises Fenced if it is not held."""

        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            ready = [row.id for row in await lock_replicas(tx, ids) if row.state is ReplicaState.READY]
            if ready:
                await set_states(tx, ready, ReplicaState.DRAINING, why)
                await bump_counter(tx, ROUTES)

        await self._database.write(body)

    async def request_stop(self, ids: Collection[str], *, why: str, lease: Lease | None = None) -> list[Replica]:
        """Mark replicas as stopping. Frontends retry the stop until the node confirms that the process has ended."""

        async def body(tx: Tx) -> list[Replica]:
            await check_held(tx, lease)
            rows = [row for row in await lock_replicas(tx, ids) if row.state is not ReplicaState.STOPPING]
            if rows:
                await set_states(tx, [row.id for row in rows], ReplicaState.STOPPING, why)
                await bump_counter(tx, ROUTES)
            return rows

        return await self._database.write(body)

    async def claim_stops(self, *, most: int = 64) -> list[Replica]:
        """Claim replicas whose stop is due; other frontends skip them for a while."""

        async def body(tx: Tx) -> list[Replica]:
            rows = await tx.fetch(
                "SELECT id FROM replicas WHERE state = 'stopping' AND stop_due_at <= now_ms()"
                " ORDER BY stop_due_at, id LIMIT $1 FOR UPDATE",
                most,
            )
            ids = [row["id"] for row in rows]
            await tx.execute_many(
                "UPDATE replicas SET stop_due_at = now_ms() + $2 WHERE id = $1",
                [(identity, STOP_LEASE_MS) for identity in ids],
            )
            return await lock_replicas(tx, ids)

        return await self._database.write(body)

    async def stopped(self, replica: Replica) -> None:
        """The node confirms that the process has ended: the slot and memory become free."""

        async def body(tx: Tx) -> None:
            gone = await tx.execute("DELETE FROM replicas WHERE id = $1 AND state = 'stopping'", replica.id)
            if gone:
                await wake_loads(tx, freed_by=replica.model)
                await bump_counter(tx, ROUTES)

        await self._database.write(body)

    async def stop_failed(self, replica: Replica, error: str, *, again_in_ms: int) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE replicas SET stop_attempts = stop_attempts + 1, stop_error = $2, changed_at = now_ms(),"
                " stop_due_at = now_ms() + $3 WHERE id = $1 AND state = 'stopping'",
                replica.id,
                error[:2000],
                again_in_ms,
            )

        await self._database.write(body)

    async def drop(self, ids: Collection[str], *, why: str, lease: Lease | None = None) -> list[Replica]:
        """Delete replicas that can no longer serve: the node is lost, or reports that the process is gone. Their
        processes are revoked: a node that returns learns of it with its next heartbeat."""

        async def body(tx: Tx) -> list[Replica]:
            await check_held(tx, lease)
            rows = await lock_replicas(tx, ids)
            for row in rows:
                detail = {"node": row.node_id, "slot": row.slot, "why": why}
                await append_event(tx, actor="corral", action="replica.lost", subject=row.model, detail=detail)
            if rows:
                await tx.execute_many("DELETE FROM replicas WHERE id = $1", [(row.id,) for row in rows])
                await record_revoked(tx, rows)
                await wake_loads(tx)
                await bump_counter(tx, ROUTES)
            return rows

        return await self._database.write(body)

    async def note_missed(self, ids: Iterable[str], *, lease: Lease | None = None) -> None:
        async def body(tx: Tx) -> None:
            await check_held(tx, lease)
            await tx.execute_many("UPDATE replicas SET missed = missed + 1 WHERE id = $1", [(one,) for one in ids])

        await self._database.write(body)

    async def note_seen(self, replica_id: str, *, epoch: int, pid: int | None, address: str, token: str | None) -> None:
        """Update a replica whose process or worker has restarted: its address and token may have changed."""

        async def body(tx: Tx) -> None:
            rows = await lock_replicas(tx, [replica_id])
            if not rows:
                return
            row = rows[0]
            moved = row.address != address or (token is not None and row.token != token)
            await tx.execute(
                "UPDATE replicas SET missed = 0, epoch = $2, address = $3, token = $4, pid = $5 WHERE id = $1",
                replica_id,
                epoch,
                address,
                row.token if token is None else token,
                pid,
            )
            if moved or row.pid != pid:
                version = await bump_counter(tx, ROUTES)
                await tx.execute("UPDATE replicas SET generation = $2 WHERE id = $1", replica_id, version)

        await self._database.write(body)


async def _read_attached(tx: Tx) -> dict[str, list[AttachedEndpoint]]:
    """By model."""
    found: dict[str, list[AttachedEndpoint]] = {}
    for endpoint in await read_endpoints(tx):
        found.setdefault(endpoint.model, []).append(endpoint)
    return found


def _route(
    model: StoredModel,
    replicas: list[Replica],
    cluster: ClusterSnapshot,
    scheduling: Scheduling | None,
    *,
    attached: list[AttachedEndpoint],
) -> ModelRoute:
    selector = scheduling.selector if scheduling is not None else {}
    return ModelRoute(
        model=model.name,
        aliases=model.aliases,
        revision=model.revision,
        created_at_ms=model.changed_at,
        replicas=route_endpoints(attached, revision=model.revision)
        + tuple(
            RouteReplica(
                id=ReplicaId(replica.id),
                node_id=replica.node_id,
                node_name=cluster.nodes[replica.node_id].name,
                slot=replica.slot,
                address=replica.address,
                protocol=replica.protocol,
                endpoints=frozenset(replica.endpoints.split()),
                continuation=replica.continuation,
                token=replica.token,
                generation=replica.generation,
                capacity=open_limit(replica.capacity, cluster.engine_of(replica)),
                revision=replica.revision,
                backend_digest=replica.backend_digest,
            )
            for replica in pick_routed(
                replicas, selector, cluster, desired=scheduling.kept if scheduling is not None else 1
            )
        ),
        policy=_policy(scheduling),
        retry_after_s=model.config.retry_after_s or None,
        context_size=model.config.context_size,
        capabilities=model.config.capabilities,
    )


def _policy(scheduling: Scheduling | None) -> RoutePolicy:
    if scheduling is None:
        return RoutePolicy()
    defaults = RoutePolicy()
    return RoutePolicy(
        prefix_affinity=scheduling.route_policy == "prefix_cache",
        balance_abs_threshold=scheduling.balance_abs_threshold or defaults.balance_abs_threshold,
        balance_rel_threshold=scheduling.balance_rel_threshold or defaults.balance_rel_threshold,
    )
