"""Intent rows: between the table and the value `Intent`; and what every change of them owes the operations."""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.operations import NodeProgressStatus, conclude
from corral.core.nodes.node import NodeId
from corral.store.backends.operation_rows import read_progress_rows
from corral.store.engine.database import Row, Tx
from corral.store.engine.sql import in_list, places
from corral.store.nodes.node_rows import decode_conditions

COLUMNS = (
    "id", "node_id", "backend", "verb", "generation", "operation_id", "wave", "spec", "state", "newest", "attempts",
    "due_at", "last_error", "cancel_requested", "claim_token", "fence", "finished_at", "free_disk_at_end",
    "conditions_at_end", "final",
)  # fmt: skip
SELECT_INTENT = f"SELECT {', '.join(COLUMNS)} FROM intents"  # noqa: S608  column names are ours
decode_wish = lru_cache(maxsize=4096)(msgspec.json.Decoder(BackendSpec).decode)  # one for all nodes of an operation


@lru_cache(maxsize=256)
def encode_wish(spec: BackendSpec) -> str:
    return msgspec.json.encode(spec).decode()


@lru_cache(maxsize=256)
def _kinds_in(conditions: str | None) -> frozenset[str]:
    return frozenset(one.kind for one in decode_conditions(conditions)) if conditions else frozenset()


def read_intent_row(row: Row) -> Intent:
    return Intent(
        id=row["id"],
        node_id=NodeId(row["node_id"]),
        backend=row["backend"],
        verb=Verb(row["verb"]),
        generation=row["generation"],
        operation_id=row["operation_id"],
        wave=row["wave"],
        spec=decode_wish(row["spec"]),
        state=IntentState(row["state"]),
        newest=bool(row["newest"]),
        attempts=row["attempts"],
        due_at=row["due_at"],
        last_error=row["last_error"],
        cancel_requested=bool(row["cancel_requested"]),
        claim_token=row["claim_token"],
        fence=row["fence"],
        finished_at=row["finished_at"],
        free_disk_at_end=row["free_disk_at_end"],
        conditions_at_end=_kinds_in(row["conditions_at_end"]),
        final=bool(row["final"]),
    )


async def lock_operations(tx: Tx, ids: Iterable[str]) -> None:
    """First in every transaction that may end one: of two that end its last two orders, one sees the other's.

    All transactions lock in one order, so that no two wait for each other: the fleet's generation, operations, intents,
    nodes of operations; and of each table the rows by their ids."""
    ordered = sorted(set(ids))
    if ordered:
        await tx.fetch(
            f"SELECT id FROM operations WHERE id IN ({places(len(ordered))}) ORDER BY id FOR UPDATE",  # noqa: S608
            *ordered,
        )


async def lock_intents(tx: Tx, ids: Iterable[str]) -> None:
    ordered = sorted(set(ids))
    if ordered:
        await tx.fetch(
            f"SELECT id FROM intents WHERE id IN ({places(len(ordered))}) ORDER BY id FOR UPDATE",  # noqa: S608
            *ordered,
        )


async def retry_unconfirmed_now(tx: Tx, node_id: NodeId) -> None:
    """The node's worker is a new process, which carries out nothing of what the one before was asked for."""
    rows = await tx.fetch("SELECT id FROM intents WHERE state = 'unconfirmed' AND node_id = $1", node_id)
    await lock_intents(tx, [row["id"] for row in rows])
    await tx.execute(
        "UPDATE intents SET due_at = now_ms(), changed_at = now_ms()"
        " WHERE state = 'unconfirmed' AND due_at > now_ms() AND node_id = $1",
        node_id,
    )


async def finish_operations(tx: Tx, ids: Iterable[str]) -> list[str]:
    """Ends those of these operations that have no open order left; answers which."""
    ordered = sorted(set(ids))
    if not ordered:
        return []
    rows = await tx.fetch(
        "SELECT id, verb, cancel_requested FROM operations"  # noqa: S608
        f" WHERE id IN ({places(len(ordered))}) AND finished_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM intents WHERE intents.operation_id = operations.id AND intents.live)",
        *ordered,
    )
    if not rows:
        return []
    ended = [row["id"] for row in rows]
    holding = {
        row["operation_id"]
        for row in await tx.fetch(
            f"SELECT operation_id FROM backend_policies WHERE operation_id IN ({places(len(ended))})",  # noqa: S608
            *ended,
        )
    }
    progress = await read_progress_rows(tx, ended)
    for row in rows:
        state, error = conclude(
            progress.get(row["id"], ()),
            verb=Verb(row["verb"]),
            cancel_requested=bool(row["cancel_requested"]),
            holds=row["id"] in holding,
        )
        await tx.execute(
            "UPDATE operations SET state = $2, error = $3, finished_at = now_ms(), changed_at = now_ms() WHERE id = $1",
            row["id"],
            state.value,
            error,
        )
    return ended


async def touch_operations(tx: Tx, ids: Iterable[str]) -> None:
    ordered = sorted(set(ids))
    if ordered:
        await tx.execute(
            f"UPDATE operations SET changed_at = now_ms() WHERE id IN ({places(len(ordered))})",  # noqa: S608
            *ordered,
        )


async def show_ended(tx: Tx, ends: Iterable[tuple[str, str]], *, status: NodeProgressStatus, error: str) -> None:
    """Of (operation, node) pairs whose order has ended by itself."""
    ended: dict[str, list[str]] = {}
    for operation_id, node_id in ends:
        ended.setdefault(operation_id, []).append(node_id)
    for operation_id, nodes in ended.items():
        ids = in_list(nodes)
        await tx.execute(
            "UPDATE operation_nodes SET status = $2, error = $3, next_attempt_at = NULL,"  # noqa: S608
            " changed_at = now_ms()"
            f" WHERE operation_id = $1 AND node_id IN ({places(len(ids), first=4)})",
            operation_id,
            status.value,
            error,
            *ids,
        )
