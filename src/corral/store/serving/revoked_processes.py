"""Processes whose row is gone though their node never said that they ended: it is told so when it is heard again."""

from collections.abc import Iterable

from corral.core.processes.leases import NodeShare
from corral.core.replicas.replica import Replica
from corral.store.engine.database import Tx

FORGET_AFTER_MS = 7 * 86_400_000
"""A machine that was away for longer has its processes ended as what no row wants."""


async def record_revoked(tx: Tx, rows: Iterable[Replica]) -> None:
    """In the transaction that takes the rows away."""
    await tx.execute("DELETE FROM revoked_processes WHERE at < now_ms() - $1", FORGET_AFTER_MS)
    await tx.execute_many(
        "INSERT INTO revoked_processes (node_id, process_key, generation, at) VALUES ($1, $2, $3, now_ms())"
        " ON CONFLICT (node_id, process_key) DO UPDATE SET generation = excluded.generation, at = excluded.at",
        [(row.node_id, row.process_key, row.generation) for row in rows if row.process_key],
    )


async def read_shares(tx: Tx) -> dict[str, NodeShare]:
    """Of every node that has, or had, something."""
    wanted: dict[str, set[str]] = {}
    for row in await tx.fetch("SELECT node_id, process_key FROM replicas WHERE process_key <> ''"):
        wanted.setdefault(row["node_id"], set()).add(row["process_key"])
    lost: dict[str, dict[str, int]] = {}
    for row in await tx.fetch("SELECT node_id, process_key, generation FROM revoked_processes"):
        lost.setdefault(row["node_id"], {})[row["process_key"]] = row["generation"]
    return {
        node: NodeShare(wanted=frozenset(wanted.get(node, ())), lost=lost.get(node, {}))
        for node in wanted.keys() | lost.keys()
    }
