"""Revoked processes: their replica row was deleted before their node confirmed their end. The node learns of it with
its next heartbeat."""

from collections.abc import Iterable

from corral.core.processes.leases import NodeShare
from corral.core.replicas.replica import Replica
from corral.store.engine.database import Tx

FORGET_AFTER_MS = 7 * 86_400_000
"""Processes of a node that was offline for longer are collected as orphans."""


async def record_revoked(tx: Tx, rows: Iterable[Replica]) -> None:
    """Call it in the transaction that deletes the rows."""
    await tx.execute("DELETE FROM revoked_processes WHERE at < now_ms() - $1", FORGET_AFTER_MS)
    await tx.execute_many(
        "INSERT INTO revoked_processes (node_id, process_key, generation, at) VALUES ($1, $2, $3, now_ms())"
        " ON CONFLICT (node_id, process_key) DO UPDATE SET generation = excluded.generation, at = excluded.at",
        [(row.node_id, row.process_key, row.generation) for row in rows if row.process_key],
    )


async def read_shares(tx: Tx) -> dict[str, NodeShare]:
    """By node: the processes it should run, and those that were revoked."""
    desired: dict[str, set[str]] = {}
    for row in await tx.fetch("SELECT node_id, process_key FROM replicas WHERE process_key <> ''"):
        desired.setdefault(row["node_id"], set()).add(row["process_key"])
    lost: dict[str, dict[str, int]] = {}
    for row in await tx.fetch("SELECT node_id, process_key, generation FROM revoked_processes"):
        lost.setdefault(row["node_id"], {})[row["process_key"]] = row["generation"]
    return {
        node: NodeShare(desired=frozenset(desired.get(node, ())), revoked=lost.get(node, {}))
        for node in desired.keys() | lost.keys()
    }
