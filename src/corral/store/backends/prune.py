"""Ends intents that can never be carried out, with the reason: at every start, and after nodes were removed."""

from collections.abc import Iterable

from corral.core.backends.operations import NodeProgressStatus
from corral.store.access.audit_events import append_event
from corral.store.backends.intent_rows import (
    finish_operations,
    lock_intents,
    lock_operations,
    mark_ended,
    touch_operations,
)
from corral.store.engine.database import Row, Tx

_UNKNOWN = "NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = intents.node_id AND nodes.removed_at IS NULL)"
_NOT_BACKEND = "EXISTS (SELECT 1 FROM nodes WHERE nodes.id = intents.node_id AND nodes.node_type <> 'backend')"
_RULES = (
    (_UNKNOWN, "the node was removed from the cluster"),
    (_NOT_BACKEND, "the node runs no backends"),
    ("backend = ''", "the intent has no backend"),
)


async def has_prunable(tx: Tx) -> bool:
    """A cheap check for frequent callers: it starts from removed nodes, not from all intents."""
    found = await tx.fetch_one(
        "SELECT 1 AS found FROM nodes WHERE removed_at IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM intents WHERE intents.live AND intents.node_id = nodes.id) LIMIT 1"
    )
    return found is not None


async def prune_intents(tx: Tx, *, also: Iterable[str] = ()) -> int:
    """Return how many were ended. `also`: operations that the caller is going to end, locked together with these."""
    found: dict[str, tuple[Row, str]] = {}
    for rule, reason in _RULES:
        for row in await tx.fetch(f"SELECT id, operation_id, node_id FROM intents WHERE live AND {rule}"):  # noqa: S608
            found.setdefault(row["id"], (row, reason))
    await lock_operations(tx, [*also, *(row["operation_id"] for row, _ in found.values())])
    await lock_intents(tx, found)
    for reason in dict.fromkeys(reason for _, reason in found.values()):
        rows = [row for row, why in found.values() if why == reason]
        operations = [row["operation_id"] for row in rows]
        await tx.execute_many(
            "UPDATE intents SET state = 'cancelled', live = false, claim_token = NULL, last_error = $2,"
            " finished_at = now_ms(), changed_at = now_ms() WHERE id = $1",
            [(row["id"], reason) for row in rows],
        )
        await mark_ended(
            tx,
            [(row["operation_id"], row["node_id"]) for row in rows],
            status=NodeProgressStatus.CANCELLED,
            error=reason,
        )
        await append_event(
            tx, actor="start", action="intents.pruned", subject="intents", detail={"count": len(rows), "reason": reason}
        )
        await touch_operations(tx, operations)
        await finish_operations(tx, operations)
    return len(found)
