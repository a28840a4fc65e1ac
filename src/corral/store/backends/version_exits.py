"""Processes of each version that ended although nobody stopped them, by the minute in which a report showed it."""

from collections.abc import Mapping

from corral.core.nodes.node import NodeId
from corral.core.nodes.process_exits import EndedProcess
from corral.store.engine.database import Tx
from corral.store.nodes.node_rows import store_now_ms

MINUTE_MS = 60_000


async def record_exits(tx: Tx, exits: Mapping[tuple[NodeId, EndedProcess], int]) -> None:
    """Adds them to those that `store/serving/version_figures.py` reads. The row of a replica stays until its process is
    stopped, so it tells the revision."""
    if not exits:
        return
    minute = await read_minute(tx)
    for (node_id, process), count in sorted(exits.items()):
        row = await tx.fetch_one(
            "SELECT revision FROM replicas WHERE node_id = $1 AND model = $2 AND slot = $3",
            node_id,
            process.model,
            process.slot,
        )
        await tx.execute(
            "INSERT INTO version_exits (digest, minute, model, revision, node_id, exits)"
            " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (digest, minute, model, revision, node_id) DO UPDATE SET"
            " exits = version_exits.exits + excluded.exits",
            process.digest,
            minute,
            process.model,
            row["revision"] if row is not None else "",
            node_id,
            count,
        )


async def read_minute(tx: Tx) -> int:
    return await store_now_ms(tx) // MINUTE_MS
