"""Nodes as administrators see and change them; a node is named by its id or its name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.nodes.labels import check_operator_labels
from corral.core.nodes.node import NameClaim, Node, NodeId, NodeStatus, with_new_process
from corral.core.nodes.presence import PresenceEvent, next_presence
from corral.core.sizes import parse_budget_bytes
from corral.store.access.audit_events import append_event
from corral.store.engine.counters import ROUTES, bump_counter
from corral.store.engine.database import Database, Tx
from corral.store.engine.sql import in_list, places
from corral.store.nodes.bus_credentials import revoke_bus_credentials
from corral.store.nodes.node_rows import (
    SELECT_NODE,
    lock_named_node,
    lock_nodes,
    read_named_node,
    read_node_row,
    store_now_ms,
    update_node,
)


class NodeStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[Node]:
        async def body(tx: Tx) -> list[Node]:
            return [
                read_node_row(row) for row in await tx.fetch(f"{SELECT_NODE} WHERE removed_at IS NULL ORDER BY name")
            ]

        return await self._database.read(body)

    async def read_statuses(self) -> dict[NodeId, NodeStatus]:
        return {node.id: node.status for node in await self.read_all()}

    async def read_one(self, node_id: str) -> Node:
        async def body(tx: Tx) -> Node:
            return await read_named_node(tx, node_id)

        return await self._database.read(body)

    async def read_names(self, ids: Iterable[str]) -> dict[str, str]:
        """By id, including removed nodes. Unknown ids are left out."""
        chosen = in_list(ids)

        async def body(tx: Tx) -> dict[str, str]:
            if not chosen:
                return {}
            rows = await tx.fetch(f"SELECT id, name FROM nodes WHERE id IN ({places(len(chosen))})", *chosen)  # noqa: S608
            return {row["id"]: row["name"] for row in rows}

        return await self._database.read(body)

    async def read_key_hashes(self) -> frozenset[str]:
        """Hashes of all nodes' secrets."""

        async def body(tx: Tx) -> frozenset[str]:
            rows = await tx.fetch("SELECT key_hash FROM nodes WHERE key_hash IS NOT NULL AND removed_at IS NULL")
            return frozenset(row["key_hash"] for row in rows)

        return await self._database.read(body)

    async def read_changes(self, since_ms: int) -> tuple[int, list[Node], list[NodeId]]:
        """The store's time, nodes changed since then, and ids of nodes removed since then."""

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

    async def approve(self, node_id: str, *, actor: str, despite_claims: bool = False) -> Node:
        """Approve the machine that has the name; `replace_identity` approves one that claims it.

        `despite_claims`: approve it even though other machines claim the name."""

        async def change(tx: Tx, node: Node) -> Node:
            if open_claims(node) and not despite_claims:
                raise InvalidInput(_list_claims(node))
            if node.approved:
                raise InvalidInput(f"node {node.name} is already approved (status {node.status})")
            await append_event(tx, actor=actor, action="node.approved", subject=node.id, detail={"name": node.name})
            return replace(node, approved=True)

        return await self._change(node_id, change)

    async def replace_identity(self, node_id: str, claim_id: str, *, actor: str) -> Node:
        """Make the claiming machine this node. Labels and limits of the node stay; the previous machine loses it."""

        async def change(tx: Tx, node: Node) -> Node:
            claim = _find_claim(node, claim_id)
            if claim.key_hash is not None:
                other = await tx.fetch_one(
                    "SELECT name FROM nodes WHERE key_hash = $1 AND removed_at IS NULL AND id <> $2",
                    claim.key_hash,
                    node.id,
                )
                if other is not None:
                    raise Conflict(f"that machine has since joined as {other['name']!r}")
            await revoke_bus_credentials(tx, node.id)
            detail = {"name": node.name, "claim": claim.id, "address": claim.source_address}
            await append_event(tx, actor=actor, action="node.replaced", subject=node.id, detail=detail)
            return replace(
                with_new_process(node),
                approved=True,
                key_hash=claim.key_hash,
                instance=None,
                epoch=node.epoch + 1,
                registered_from=claim.source_address or None,
                http_address=claim.http_address,
                presence=next_presence(node.presence, PresenceEvent.RESTARTED),
                presence_reason="replaced by another machine; not yet seen on the message bus",
                presence_since=await store_now_ms(tx),
                claims=tuple(one for one in node.claims if one.id != claim.id),
            )

        return await self._change(node_id, change)

    async def reject_claim(self, node_id: str, claim_id: str, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            claim = _find_claim(node, claim_id)
            detail = {"name": node.name, "claim": claim.id, "address": claim.source_address}
            await append_event(tx, actor=actor, action="node.claim_rejected", subject=node.id, detail=detail)
            rejected = replace(claim, rejected_at=await store_now_ms(tx))
            return replace(node, claims=tuple(rejected if one.id == claim.id else one for one in node.claims))

        return await self._change(node_id, change)

    async def add_refused(self, counts: Mapping[str, tuple[int, str]]) -> set[str]:
        """Count rejected messages. `counts`: by node, how many, and the reason of the latest. Unknown nodes are
        ignored; returns the known ones."""

        async def body(tx: Tx) -> set[str]:
            known: set[str] = set(await lock_nodes(tx, (NodeId(node_id) for node_id in counts)))
            await tx.execute_many(
                "UPDATE nodes SET refused_count = refused_count + $2, refused_reason = $3, refused_at = now_ms(),"
                " changed_at = now_ms() WHERE id = $1 AND removed_at IS NULL",
                [(node_id, *counts[node_id]) for node_id in sorted(known)],
            )
            return known

        return await self._database.write(body)

    async def set_drain(self, node_id: str, requested: bool, *, actor: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            if node.drain_requested != requested:
                action = "node.drained" if requested else "node.resumed"
                await append_event(tx, actor=actor, action=action, subject=node.id, detail={"name": node.name})
            return replace(node, drain_requested=requested)

        return await self._change(node_id, change)

    async def set_labels(self, node_id: str, labels: Mapping[str, str], *, keep: bool, actor: str) -> Node:
        """Set the administrator's labels. `keep`: in addition to the existing ones. The worker's labels stay."""

        async def change(tx: Tx, node: Node) -> Node:
            new = {**node.operator_labels, **labels} if keep else dict(labels)
            check_operator_labels(new)
            if new != node.operator_labels:
                await append_event(tx, actor=actor, action="node.labelled", subject=node.id, detail={"labels": new})
            return replace(node, operator_labels=new)

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
            await bump_counter(tx, ROUTES)
            return node

        return await self._database.write(body)


def open_claims(node: Node) -> list[NameClaim]:
    return [claim for claim in node.claims if claim.rejected_at is None]


def _find_claim(node: Node, claim_id: str) -> NameClaim:
    found = [claim for claim in node.claims if claim_id and claim.id.startswith(claim_id)]
    if len(found) != 1:
        problem = "there are several claims on" if found else "there is no claim on"
        raise NotFound(f"{problem} {node.name} with the id {claim_id!r}; {_list_claims(node)}")
    return found[0]


def _list_claims(node: Node) -> str:
    claims = [f"{claim.id[:8]} from {claim.source_address or 'an unknown address'}" for claim in open_claims(node)]
    if not claims:
        return "no other machine claims the name"
    return (
        f"other machines claim the name {node.name}: {', '.join(claims)}."
        f" Approve one as its replacement with `corral nodes approve {node.name} --claim ID`,"
        f" or reject it with `corral nodes reject {node.name} --claim ID`"
    )
