"""Processes of each version that ended although nobody stopped them, by the minute in which a report showed it."""

from collections.abc import Mapping

from corral.core.backends.serving_figures import VersionKey
from corral.store.engine.database import Tx
from corral.store.nodes.node_rows import store_now_ms

MINUTE_MS = 60_000


async def record_exits(tx: Tx, exits: Mapping[VersionKey, int]) -> None:
    """Adds them to the figures that `store/serving/version_figures.py` reads."""
    if not exits:
        return
    minute = await read_minute(tx)
    await tx.execute_many(
        "INSERT INTO version_figures (minute, model, node_id, digest, requests, errors, tokens_out, answer_ms, exits)"
        " VALUES ($1, $2, $3, $4, 0, 0, 0, 0, $5) ON CONFLICT (digest, minute, model, node_id) DO UPDATE SET"
        " exits = version_figures.exits + excluded.exits",
        [(minute, *key, count) for key, count in sorted(exits.items())],
    )


async def read_minute(tx: Tx) -> int:
    return await store_now_ms(tx) // MINUTE_MS
