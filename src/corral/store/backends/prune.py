"""At every start, under the migration lock: orders nobody can carry out any more are ended, with the reason."""

from collections.abc import Iterable

from corral.core.backends.operations import NodeProgressStatus
from corral.store.access.audit_events import append_event
from corral.store.backends.intent_rows import (
    finish_operations,
    lock_intents,
    lock_operations,
    show_ended,
    touch_operations,
)
from corral.store.engine.database import Row, Tx

_UNKNOWN = "NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = intents.node_id AND nodes.removed_at IS NULL)"
_NOT_BACKEND = "EXISTS (SELECT 1 FROM nodes WHERE nodes.id = intents.node_id AND nodes.node_type <> 'backend')"
_RULES = (
    (_UNKNOWN, "the node is no longer part of the fleet"),
    (_NOT_BACKEND, "the node runs no backends"),
    ("backend = ''", "the order names no backend"),
)


async def has_prunable(tx: Tx) -> bool:
    """A cheap look, for whoever does this often: from the nodes that went, not from all the orders there are."""
    found = await tx.fetch_one(
        "SELECT 1 AS found FROM nodes WHERE removed_at IS NOT NULL"
        " AND EXISTS (SELECT 1 FROM intents WHERE intents.live AND intents.node_id = nodes.id) LIMIT 1"
    )
    return found is not None


async def prune_intents(tx: Tx, *, also: Iterable[str] = ()) -> int:
    """How many were ended. `also`: operations that the caller is going to end, locked together with these."""
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
        await show_ended(
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
