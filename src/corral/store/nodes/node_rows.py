"""Conversion between rows of `nodes` and the value `Node`; locks and updates of such rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import msgspec

from corral.core.errors import NotFound
from corral.core.nodes.conditions import Condition
from corral.core.nodes.node import NameClaim, Node, NodeId, NodeType
from corral.core.nodes.presence import Presence
from corral.store.engine.counters import ROUTES, bump_counter
from corral.store.engine.database import Row, Tx

COLUMNS = tuple(field.name for field in fields(Node))
SELECT_NODE = f"SELECT {', '.join(COLUMNS)} FROM nodes"  # noqa: S608  column names are ours
_BOOLEANS = ("approved", "drain_requested", "worker_draining", "bus_answered", "bus_no_responders")
_decode_claims = msgspec.json.Decoder(tuple[NameClaim, ...]).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
decode_conditions = msgspec.json.Decoder(tuple[Condition, ...]).decode


def _encode_labels(labels: Mapping[str, str]) -> str:
    return msgspec.json.encode(labels, order="sorted").decode()


def encode_conditions(conditions: Sequence[Condition]) -> str:
    return msgspec.json.encode(conditions).decode()


def read_node_row(row: Row) -> Node:
    return _node_of(tuple(row))


@lru_cache(maxsize=4096)  # All nodes are read often, and most have not changed in between.
def _node_of(row: tuple[Any, ...]) -> Node:
    values = dict(zip(COLUMNS, row, strict=True))
    for column in _BOOLEANS:
        values[column] = bool(values[column])
    values["node_type"] = NodeType(values["node_type"])
    values["presence"] = Presence(values["presence"])
    values["worker_labels"] = _decode_labels(values["worker_labels"])
    values["operator_labels"] = _decode_labels(values["operator_labels"])
    values["conditions"] = decode_conditions(values["conditions"])
    values["claims"] = _decode_claims(values["claims"])
    return Node(**values)


def _values(node: Node) -> list[object]:
    encoded = {
        "worker_labels": _encode_labels(node.worker_labels),
        "operator_labels": _encode_labels(node.operator_labels),
        "claims": msgspec.json.encode(node.claims).decode(),
        "node_type": node.node_type.value,
        "presence": node.presence.value,
        "conditions": encode_conditions(node.conditions),
    }
    return [encoded[column] if column in encoded else getattr(node, column) for column in COLUMNS]


async def insert_node(tx: Tx, node: Node) -> None:
    places = ", ".join(f"${position}" for position in range(1, len(COLUMNS) + 1))
    await tx.execute(
        f"INSERT INTO nodes ({', '.join(COLUMNS)}) VALUES ({places})",  # noqa: S608
        *_values(node),
    )


async def update_node(tx: Tx, before: Node, after: Node) -> Node:
    """Write the columns that differ."""
    if before == after:
        return before
    now = await store_now_ms(tx)
    same = (before.presence, before.approved) == (after.presence, after.approved)
    after = replace(
        after,
        changed_at=now,
        presence_since=after.presence_since if same else now,
        drain_since=_drain_since(before, after, now),
    )
    old, new = _values(before), _values(after)
    changed = [(column, new[at]) for at, column in enumerate(COLUMNS) if old[at] != new[at]]
    assignments = [f"{column} = ${position}" for position, (column, _) in enumerate(changed, 2)]
    await tx.execute(
        f"UPDATE nodes SET {', '.join(assignments)} WHERE id = $1",  # noqa: S608  column names are ours
        after.id,
        *(value for _, value in changed),
    )
    if (before.status, before.name) != (after.status, after.name) or labels_differ(before, after):
        await bump_counter(tx, ROUTES)
    return after


def _drain_since(before: Node, after: Node, now_ms: int) -> int | None:
    if not (after.drain_requested or after.worker_draining):
        return None
    return before.draining_since if before.drain_requested or before.worker_draining else now_ms


def labels_differ(before: Node, after: Node) -> bool:
    return (before.worker_labels, before.operator_labels) != (after.worker_labels, after.operator_labels)


async def store_now_ms(tx: Tx) -> int:
    row = await tx.fetch_one("SELECT now_ms() AS now")
    assert row is not None
    now: int = row["now"]
    return now


def unknown_node(node_id: str) -> NotFound:
    return NotFound(f"there is no node {node_id!r}; list the nodes with `corral nodes list`")


async def lock_node(tx: Tx, node_id: str) -> Node:
    return _found(
        await tx.fetch_one(f"{SELECT_NODE} WHERE id = $1 AND removed_at IS NULL FOR UPDATE", node_id), node_id
    )


# A name never looks like an id, and names are unique: at most one node matches.
_NAMED = f"{SELECT_NODE} WHERE (id = $1 OR name = $1) AND removed_at IS NULL"


async def read_named_node(tx: Tx, id_or_name: str) -> Node:
    return _found(await tx.fetch_one(_NAMED, id_or_name), id_or_name)


async def lock_named_node(tx: Tx, id_or_name: str) -> Node:
    return _found(await tx.fetch_one(f"{_NAMED} FOR UPDATE", id_or_name), id_or_name)


def _found(row: Row | None, what: str) -> Node:
    if row is None:
        raise unknown_node(what)
    return read_node_row(row)


async def lock_nodes(tx: Tx, ids: Iterable[NodeId]) -> dict[NodeId, Node]:
    """Those of `ids` that exist, locked in the order of their ids, so that two transactions cannot deadlock."""
    ordered = sorted(set(ids))
    if not ordered:
        return {}
    places = ", ".join(f"${position}" for position in range(1, len(ordered) + 1))
    rows = await tx.fetch(
        f"{SELECT_NODE} WHERE id IN ({places}) AND removed_at IS NULL ORDER BY id FOR UPDATE", *ordered
    )
    return {NodeId(row["id"]): read_node_row(row) for row in rows}
