"""Conversion between rows of `replicas` and the value `Replica`, and the capacity that they leave on their nodes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import msgspec

from corral.core.nodes.node import Node
from corral.core.replicas.capacity import Reservation, node_capacity
from corral.core.replicas.placement import HeldReplica, NodeCapacity
from corral.core.replicas.replica import COMING, Replica, ReplicaState
from corral.store.engine.database import Row, Tx
from corral.store.engine.sql import places

COLUMNS = tuple(field.name for field in fields(Replica))
SELECT_REPLICA = f"SELECT {', '.join(COLUMNS)} FROM replicas"  # noqa: S608  column names are ours

InFlight = Callable[[str], int]
"""The number of open requests of a replica, as far as this frontend knows."""


def read_replica_row(row: Row) -> Replica:
    return _replica_of(tuple(row))


@lru_cache(maxsize=16384)  # like nodes: every reconcile reads all replicas, and few have changed
def _replica_of(row: tuple[Any, ...]) -> Replica:
    values = dict(zip(COLUMNS, row, strict=True))
    values["state"] = ReplicaState(values["state"])
    return Replica(**values)


async def insert_replica(tx: Tx, replica: Replica) -> None:
    values = [getattr(replica, column) for column in COLUMNS if column not in ("last_used", "created_at", "changed_at")]
    columns = [column for column in COLUMNS if column not in ("last_used", "created_at", "changed_at")]
    await tx.execute(
        f"INSERT INTO replicas ({', '.join(columns)}, last_used, created_at, changed_at)"  # noqa: S608
        f" VALUES ({places(len(columns))}, now_ms(), now_ms(), now_ms())",
        *values,
    )


async def read_replicas(tx: Tx, where: str = "", *args: object) -> list[Replica]:
    rows = await tx.fetch(f"{SELECT_REPLICA} {where} ORDER BY model, node_id, slot", *args)
    return [read_replica_row(row) for row in rows]


async def lock_replicas(tx: Tx, ids: Collection[str]) -> list[Replica]:
    """Locked in the order of their ids, so that two transactions cannot deadlock."""
    if not ids:
        return []
    ordered = sorted(ids)
    rows = await tx.fetch(f"{SELECT_REPLICA} WHERE id IN ({places(len(ordered))}) ORDER BY id FOR UPDATE", *ordered)
    return [read_replica_row(row) for row in rows]


async def set_states(tx: Tx, ids: Iterable[str], state: ReplicaState, reason: str) -> None:
    await tx.execute_many(
        "UPDATE replicas SET state = $2, reason = $3, changed_at = now_ms(), stop_due_at = now_ms() WHERE id = $1",
        [(identity, state.value, reason) for identity in sorted(ids)],
    )


def capacity_of_node(
    node: Node,
    replicas: Iterable[Replica],
    *,
    now_ms: int,
    in_flight: InFlight,
    groups: Mapping[str, frozenset[str]],
    spare: Callable[[Replica], int],
) -> NodeCapacity:
    here = [replica for replica in replicas if replica.node_id == node.id]
    held = [
        HeldReplica(
            id=replica.id,
            model=replica.model,
            slot=replica.slot,
            in_flight=(count := in_flight(replica.id)),
            idle_ms=max(0, now_ms - replica.last_used),
            memory_bytes=replica.memory_bytes,
            groups=groups.get(replica.model, frozenset()),
            evictable=replica.state is ReplicaState.READY and count == 0 and spare(replica) > 0,
            spare=spare(replica),
        )
        for replica in here
    ]
    return node_capacity(node, held, [_reservation(replica) for replica in here if _is_unseen(node, replica)])


def _is_unseen(node: Node, replica: Replica) -> bool:
    """Whether the node's reported figures do not include it yet: it is starting, or became ready after the last
    heartbeat."""
    if replica.state in COMING:
        return True
    return replica.ready_at is not None and replica.ready_at >= (node.last_heartbeat or 0)


def _reservation(replica: Replica) -> Reservation:
    disk = replica.disk_bytes if replica.state in COMING else 0
    return Reservation(memory_bytes=replica.memory_bytes or 0, disk_bytes=disk)


_decode_document = msgspec.json.Decoder(dict[str, object]).decode


async def read_pinned(tx: Tx) -> frozenset[str]:
    """Models that are neither stopped when idle nor evicted."""
    rows = await tx.fetch("SELECT name, document FROM models WHERE document LIKE '%pinned%'")
    return frozenset(row["name"] for row in rows if _decode_document(row["document"]).get("pinned") is True)


async def read_groups(tx: Tx) -> dict[str, frozenset[str]]:
    """By model: its concurrency groups."""
    rows = await tx.fetch("SELECT name, document FROM models WHERE document LIKE '%concurrency_groups%'")
    found = {}
    for row in rows:
        groups = _decode_document(row["document"]).get("concurrency_groups") or []
        if isinstance(groups, list):
            found[row["name"]] = frozenset(str(group) for group in groups)
    return found
