"""Nodes as administrators see and change them, by id or by name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from corral.core.errors import InvalidInput, NotFound
from corral.core.labels import check_operator_labels
from corral.core.nodes import Node, NodeId
from corral.core.sizes import parse_budget_bytes
from corral.store.bus_credentials import revoke_bus_credentials
from corral.store.database import Database, Tx
from corral.store.events import append_event
from corral.store.node_rows import (
    SELECT_NODE,
    lock_named_node,
    read_named_node,
    read_node_row,
    store_now_ms,
    update_node,
)
from corral.store.rows import in_list, places
from corral.store.versions import ROUTES, bump_version


class NodeStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[Node]:
        async def body(tx: Tx) -> list[Node]:
            return [
                read_node_row(row) for row in await tx.fetch(f"{SELECT_NODE} WHERE removed_at IS NULL ORDER BY name")
            ]

        return await self._database.read(body)

    async def read_one(self, node_id: str) -> Node:
        async def body(tx: Tx) -> Node:
            return await read_named_node(tx, node_id)

        return await self._database.read(body)

    async def read_names(self, ids: Iterable[str]) -> dict[str, str]:
        """By id; of removed ones too. Whatever is no node's id is passed over."""
        wanted = in_list(ids)

        async def body(tx: Tx) -> dict[str, str]:
            if not wanted:
                return {}
            rows = await tx.fetch(f"SELECT id, name FROM nodes WHERE id IN ({places(len(wanted))})", *wanted)  # noqa: S608
            return {row["id"]: row["name"] for row in rows}

        return await self._database.read(body)

    async def read_key_hashes(self) -> frozenset[str]:
        """Of the secrets of all nodes that have one."""

        async def body(tx: Tx) -> frozenset[str]:
            rows = await tx.fetch("SELECT key_hash FROM nodes WHERE key_hash IS NOT NULL AND removed_at IS NULL")
            return frozenset(row["key_hash"] for row in rows)

        return await self._database.read(body)

    async def read_changes(self, since_ms: int) -> tuple[int, list[Node], list[NodeId]]:
        """The store's time now, nodes changed since, ids of nodes removed since."""

        async def body(tx: Tx) -> tuple[int, list[Node], list[NodeId]]:
            now = await store_now_ms(tx)
            changed = await tx.fetch(f"{SELECT_NODE} WHERE changed_at >= $1 AND removed_at IS NULL", since_ms)
            removed = await tx.fetch("SELECT id FROM nodes WHERE changed_at >= $1 AND removed_at IS NOT NULL", since_ms)
            return now, [read_node_row(row) for row in changed], [NodeId(row["id"]) for row in removed]

        return await self._database.read(body)

    async def now_ms(self) -> int:
        return await self._database.read(store_now_ms)

    async def _change(self, node_id: str, change: Callable[[Tx, Node], Awaitable[Node]]) -> Node:
        async def body(tx: Tx) -> Node:
            node = await lock_named_node(tx, node_id)
            return await update_node(tx, node, await change(tx, node))

        return await self._database.write(body)

    async def approve(self, node_id: str, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            if node.approved:
                raise InvalidInput(f"node {node.name} is {node.status}, not pending; there is nothing to approve")
            await append_event(tx, actor=actor, action="node.approved", subject=node.id, detail={"name": node.name})
            return replace(node, approved=True)

        return await self._change(node_id, change)

    async def add_refused(self, counts: Mapping[str, tuple[int, str]]) -> None:
        """By node: how many of its messages were refused, and why the latest. Of unknown nodes nothing is kept."""

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                "UPDATE nodes SET refused_count = refused_count + $2, refused_reason = $3, refused_at = now_ms(),"
                " changed_at = now_ms() WHERE id = $1 AND removed_at IS NULL",
                [(node_id, *counts[node_id]) for node_id in sorted(counts)],
            )

        await self._database.write(body)

    async def set_drain(self, node_id: str, wanted: bool, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            if node.drain_wanted != wanted:
                action = "node.drained" if wanted else "node.resumed"
                await append_event(tx, actor=actor, action=action, subject=node.id, detail={"name": node.name})
            return replace(node, drain_wanted=wanted)

        return await self._change(node_id, change)

    async def set_labels(self, node_id: str, labels: Mapping[str, str], *, keep: bool, actor: str) -> Node:
        """The administrator's labels; the worker's own are untouched."""

        async def change(tx: Tx, node: Node) -> Node:
            wanted = {**node.operator_labels, **labels} if keep else dict(labels)
            check_operator_labels(wanted)
            if wanted != node.operator_labels:
                await append_event(tx, actor=actor, action="node.labelled", subject=node.id, detail={"labels": wanted})
            return replace(node, operator_labels=wanted)

        return await self._change(node_id, change)

    async def delete_label(self, node_id: str, key: str, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            if key not in node.operator_labels:
                raise NotFound(f"node {node.name} has no label {key!r} set by an administrator")
            left = {name: value for name, value in node.operator_labels.items() if name != key}
            await append_event(tx, actor=actor, action="node.labelled", subject=node.id, detail={"labels": left})
            return replace(node, operator_labels=left)

        return await self._change(node_id, change)

    async def set_max_replicas(self, node_id: str, value: int | None, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            await append_event(tx, actor=actor, action="node.max_replicas", subject=node.id, detail={"value": value})
            return replace(node, max_replicas_override=value)

        return await self._change(node_id, change)

    async def set_vram_budget(self, node_id: str, value: str | None, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            if value:
                parse_budget_bytes(value, total_bytes=node.total_vram or (1 << 40))
            await append_event(tx, actor=actor, action="node.vram_budget", subject=node.id, detail={"value": value})
            return replace(node, vram_budget_override=value or None)

        return await self._change(node_id, change)

    async def remove(self, node_id: str, *, actor: str) -> Node:
        async def body(tx: Tx) -> Node:
            node = await lock_named_node(tx, node_id)
            await revoke_bus_credentials(tx, node.id)
            await tx.execute(
                "UPDATE nodes SET removed_at = now_ms(), changed_at = now_ms(), key_hash = NULL WHERE id = $1", node.id
            )
            await append_event(tx, actor=actor, action="node.removed", subject=node.id, detail={"name": node.name})
            await bump_version(tx, ROUTES)
            return node

        return await self._database.write(body)
