"""Conversion between rows of `operations` and `operation_nodes` and their values."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import msgspec

from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, Operation, OperationState
from corral.core.backends.progress import settle_transfer
from corral.core.nodes.targets import Target
from corral.core.transfer import TransferProgress
from corral.store.engine.database import Row, Tx
from corral.store.engine.sql import in_list, places

PROGRESS_COLUMNS = tuple(field.name for field in fields(NodeProgress))
_COLUMNS = tuple(field.name for field in fields(Operation) if field.name != "nodes")
SELECT_OPERATION = f"SELECT {', '.join(_COLUMNS)} FROM operations"  # noqa: S608  column names are ours
decode_target = msgspec.json.Decoder(Target).decode
_decode_transfer = msgspec.json.Decoder(TransferProgress).decode


def encode_target(target: Target) -> str:
    return msgspec.json.encode(target).decode()


_STATUS = {status.value: status for status in NodeProgressStatus}


@lru_cache(maxsize=8192)  # An operation on a thousand nodes is read many times a second while people watch it.
def _progress_of(row: tuple[Any, ...], verb: Verb) -> NodeProgress:
    values = dict(zip(PROGRESS_COLUMNS, row, strict=True))
    status = values["status"] = _STATUS[values["status"]]
    transfer = _decode_transfer(values["transfer"]) if values["transfer"] else TransferProgress()
    values["transfer"] = settle_transfer(transfer, status, verb)
    return NodeProgress(**values)


async def read_progress_rows(tx: Tx, ids: Iterable[str]) -> Mapping[str, tuple[NodeProgress, ...]]:
    """By operation: its nodes, sorted by name."""
    ordered = sorted(set(ids))
    if not ordered:
        return {}
    columns = ", ".join(f"operation_nodes.{column}" for column in PROGRESS_COLUMNS)
    rows = await tx.fetch(
        f"SELECT {columns}, operation_id, verb FROM operation_nodes JOIN operations ON operations.id = operation_id"  # noqa: S608
        f" WHERE operation_id IN ({places(len(ordered))}) ORDER BY node_name, operation_nodes.node_id",
        *ordered,
    )
    found: dict[str, list[NodeProgress]] = {}
    for row in rows:
        progress = _progress_of(tuple(row)[: len(PROGRESS_COLUMNS)], Verb(row["verb"]))
        found.setdefault(row["operation_id"], []).append(progress)
    return {operation_id: tuple(nodes) for operation_id, nodes in found.items()}


def encode_transfer(transfer: TransferProgress) -> str:
    return msgspec.json.encode(transfer).decode()


async def read_requester_rows(tx: Tx, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """By operation: who requested it, and when."""
    ordered = in_list(ids)
    if not ordered:
        return {}
    rows = await tx.fetch(
        f"SELECT id, actor, created_at FROM operations WHERE id IN ({places(len(ordered))})",  # noqa: S608
        *ordered,
    )
    return {row["id"]: (row["actor"], row["created_at"]) for row in rows}


def read_operation_row(row: Row, nodes: tuple[NodeProgress, ...] = ()) -> Operation:
    values = {column: row[column] for column in _COLUMNS}
    values["verb"] = Verb(values["verb"])
    values["state"] = OperationState(values["state"])
    values["target"] = decode_target(values["target"])
    values["cancel_requested"] = bool(values["cancel_requested"])
    return Operation(**values, nodes=nodes)
