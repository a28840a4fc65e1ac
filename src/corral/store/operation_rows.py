"""Operation rows and their per-node rows: between the tables and the values."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

import msgspec

from corral.core.intents import Verb
from corral.core.operations import NodeProgress, NodeProgressStatus, Operation, OperationState
from corral.core.targets import Target
from corral.store.database import Row, Tx
from corral.store.rows import places

PROGRESS_COLUMNS = tuple(field.name for field in fields(NodeProgress))
_COLUMNS = tuple(field.name for field in fields(Operation) if field.name != "nodes")
SELECT_OPERATION = f"SELECT {', '.join(_COLUMNS)} FROM operations"  # noqa: S608  column names are ours
_decode_target = msgspec.json.Decoder(Target).decode


def encode_target(target: Target) -> str:
    return msgspec.json.encode(target).decode()


_STATUS = {status.value: status for status in NodeProgressStatus}


def read_progress_row(row: Row) -> NodeProgress:
    # Written out: an operation on a thousand nodes is read many times a second while people watch it.
    return NodeProgress(
        node_id=row["node_id"],
        node_name=row["node_name"],
        status=_STATUS[row["status"]],
        error=row["error"],
        phase=row["phase"],
        file_name=row["file_name"],
        bytes_done=row["bytes_done"],
        bytes_total=row["bytes_total"],
        percentage=row["percentage"],
        rate_bytes_per_s=row["rate_bytes_per_s"],
        eta_s=row["eta_s"],
        sequence=row["sequence"],
        variant=row["variant"],
        digest=row["digest"],
        attempts=row["attempts"],
        next_attempt_at=row["next_attempt_at"],
    )


async def read_progress_rows(tx: Tx, ids: Iterable[str]) -> Mapping[str, tuple[NodeProgress, ...]]:
    """By operation, its nodes in the order of their names."""
    ordered = sorted(set(ids))
    if not ordered:
        return {}
    rows = await tx.fetch(
        f"SELECT operation_id, {', '.join(PROGRESS_COLUMNS)} FROM operation_nodes"  # noqa: S608
        f" WHERE operation_id IN ({places(len(ordered))}) ORDER BY node_name, node_id",
        *ordered,
    )
    found: dict[str, list[NodeProgress]] = {}
    for row in rows:
        found.setdefault(row["operation_id"], []).append(read_progress_row(row))
    return {operation_id: tuple(nodes) for operation_id, nodes in found.items()}


def read_operation_row(row: Row, nodes: tuple[NodeProgress, ...] = ()) -> Operation:
    values = {column: row[column] for column in _COLUMNS}
    values["verb"] = Verb(values["verb"])
    values["state"] = OperationState(values["state"])
    values["target"] = _decode_target(values["target"])
    values["cancel_wanted"] = bool(values["cancel_wanted"])
    return Operation(**values, nodes=nodes)
