"""The kinds of things that `/api/events` tells, read from the stores that own them."""

from typing import Protocol

from corral.core.nodes import Node, NodeId
from corral.frontend.admin.node_view import view_node
from corral.frontend.feed import Change, Changes, Kind


class NodeChanges(Protocol):
    async def read_changes(self, since_ms: int) -> tuple[int, list[Node], list[NodeId]]: ...

    async def read_all(self) -> list[Node]: ...

    async def now_ms(self) -> int: ...


def node_kind(nodes: NodeChanges) -> Kind:
    def show(node: Node, now_ms: int) -> Change:
        return Change(node.id, node.changed_at, view_node(node, now_ms=now_ms))

    async def read_since(since_ms: int) -> Changes:
        now_ms, changed, removed = await nodes.read_changes(since_ms)
        return Changes(now_ms=now_ms, changed=[show(node, now_ms) for node in changed], removed=removed)

    async def read_all() -> Changes:
        now_ms = await nodes.now_ms()
        return Changes(now_ms=now_ms, changed=[show(node, now_ms) for node in await nodes.read_all()])

    return Kind(name="nodes", read_since=read_since, read_all=read_all)
