"""Conversion between rows of `intents` and the value `Intent`; locks, and updates of the operations they belong to."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb, with_last_error
from corral.core.backends.operations import NodeProgressStatus, OperationState, conclude
from corral.core.backends.starts import StartProof
from corral.core.nodes.node import NodeId
from corral.store.backends.operation_rows import read_progress_rows
from corral.store.engine.database import Row, Tx
from corral.store.engine.sql import in_list, places
from corral.store.nodes.node_rows import decode_conditions

COLUMNS = (
    "id", "node_id", "backend", "verb", "generation", "operation_id", "spec", "state", "newest", "attempts",
    "due_at", "last_error", "cancel_requested", "claim_token", "fence", "finished_at", "epoch_at_end",
    "free_disk_at_end", "conditions_at_end", "final", "held",
)  # fmt: skip
SELECT_INTENT = f"SELECT {', '.join(COLUMNS)} FROM intents"  # noqa: S608  column names are ours
decode_spec = lru_cache(maxsize=4096)(msgspec.json.Decoder(BackendSpec).decode)  # one for all nodes of an operation


NO_OPEN_ROLLOUT = (
    "NOT EXISTS (SELECT 1 FROM rollouts WHERE rollouts.operation_id = operations.id AND rollouts.gated"
    " AND rollouts.ended_at IS NULL)"
)
"""A rollout with gates may take back what is done: its operation ends with it."""


@lru_cache(maxsize=256)
def encode_spec(spec: BackendSpec) -> str:
    return msgspec.json.encode(spec).decode()


_decode_proof = msgspec.json.Decoder(StartProof).decode


def encode_proof(proof: StartProof | None) -> str:
    return msgspec.json.encode(proof).decode() if proof is not None else ""


def decode_proof(text: str | None) -> StartProof | None:
    return _decode_proof(text) if text else None


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
        spec=decode_spec(row["spec"]),
        state=IntentState(row["state"]),
        newest=bool(row["newest"]),
        attempts=row["attempts"],
        due_at=row["due_at"],
        last_error=row["last_error"],
        cancel_requested=bool(row["cancel_requested"]),
        claim_token=row["claim_token"],
        fence=row["fence"],
        finished_at=row["finished_at"],
        epoch_at_end=row["epoch_at_end"],
        free_disk_at_end=row["free_disk_at_end"],
        conditions_at_end=_kinds_in(row["conditions_at_end"]),
        final=bool(row["final"]),
        held=bool(row["held"]),
    )


async def lock_operations(tx: Tx, ids: Iterable[str]) -> None:
    """Call first in every transaction that may end an operation: of two that end its last two intents, the second then
    sees the result of the first.

    All transactions lock in the same order, so that they cannot deadlock: the fleet's generation, operations, intents,
    nodes of operations; rows of one table by their ids."""
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


async def cancel_intents(tx: Tx, operation_id: str, *, why: str) -> list[Intent]:
    """Cancel the live intents of an operation whose lock is held: those that wait end, of the others a cancel is
    requested. Returns them as they were."""
    rows = await tx.fetch(f"{SELECT_INTENT} WHERE operation_id = $1 AND live ORDER BY id FOR UPDATE", operation_id)
    intents = [read_intent_row(row) for row in rows]
    waiting = [intent for intent in intents if intent.state is IntentState.PENDING]
    await tx.execute_many(
        "UPDATE intents SET state = 'cancelled', live = false, last_error = $2, finished_at = now_ms(),"
        " changed_at = now_ms() WHERE id = $1",
        [(intent.id, with_last_error(why, intent)) for intent in waiting],
    )
    await tx.execute_many(
        "UPDATE intents SET cancel_requested = true, due_at = now_ms(), changed_at = now_ms() WHERE id = $1",
        [(intent.id,) for intent in intents if intent.state is not IntentState.PENDING],
    )
    for text in sorted({with_last_error(why, intent) for intent in waiting}):
        ended = [(operation_id, one.node_id) for one in waiting if with_last_error(why, one) == text]
        await mark_ended(tx, ended, status=NodeProgressStatus.CANCELLED, error=text)
    return intents


async def retry_unconfirmed_now(tx: Tx, node_id: NodeId) -> None:
    """The node's worker has restarted, and a new process does not continue the commands of the previous one."""
    rows = await tx.fetch("SELECT id FROM intents WHERE state = 'unconfirmed' AND node_id = $1", node_id)
    await lock_intents(tx, [row["id"] for row in rows])
    await tx.execute(
        "UPDATE intents SET due_at = now_ms(), changed_at = now_ms()"
        " WHERE state = 'unconfirmed' AND due_at > now_ms() AND node_id = $1",
        node_id,
    )


async def finish_operations(tx: Tx, ids: Iterable[str]) -> list[str]:
    """End those of the operations that have no live intent left; return their ids."""
    ordered = sorted(set(ids))
    if not ordered:
        return []
    rows = await tx.fetch(
        "SELECT id, verb, cancel_requested FROM operations"  # noqa: S608
        f" WHERE id IN ({places(len(ordered))}) AND finished_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM intents WHERE intents.operation_id = operations.id AND intents.live)"
        f" AND {NO_OPEN_ROLLOUT}",
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
        await tx.execute(
            "UPDATE rollouts SET state = $2, reason = $3, ended_at = now_ms(), changed_at = now_ms()"
            " WHERE operation_id = $1 AND ended_at IS NULL",
            row["id"],
            _ROLLOUT_END[state],
            error,
        )
    return ended


_ROLLOUT_END: Mapping[OperationState, str] = {
    OperationState.COMPLETED: "completed",
    OperationState.FAILED: "failed",
    OperationState.CANCELLED: "aborted",
    OperationState.RUNNING: "running",
}
"""For rollouts without gates."""


async def touch_operations(tx: Tx, ids: Iterable[str]) -> None:
    ordered = sorted(set(ids))
    if ordered:
        await tx.execute(
            f"UPDATE operations SET changed_at = now_ms() WHERE id IN ({places(len(ordered))})",  # noqa: S608
            *ordered,
        )


async def mark_ended(tx: Tx, ends: Iterable[tuple[str, str]], *, status: NodeProgressStatus, error: str) -> None:
    """Set the status of (operation, node) pairs whose intent has ended."""
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
