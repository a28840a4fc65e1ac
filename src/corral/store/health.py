"""What the health pass found: bus round trips and heartbeat ages become presence."""

from collections.abc import Iterable

from corral.core.health import BusProbe, judge_node
from corral.core.nodes import Node, NodeId
from corral.core.presence import Limits
from corral.store.database import Database, Tx
from corral.store.events import append_event
from corral.store.leases import Lease, check_fence
from corral.store.node_rows import SELECT_NODE, lock_nodes, read_node_row, store_now_ms, update_node


class HealthStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(
        self, probes: Iterable[BusProbe], *, lease: Lease, listened_s: float, limits: Limits
    ) -> list[tuple[Node, Node]]:
        """Judge every node; (before, after) of those whose status changed. A quiet herd costs one read."""
        by_id = {probe.node_id: probe for probe in probes}

        async def find(tx: Tx) -> list[NodeId]:
            now = await store_now_ms(tx)
            nodes = [read_node_row(row) for row in await tx.fetch(f"{SELECT_NODE} WHERE removed_at IS NULL")]
            judged = (
                (node, judge_node(node, by_id.get(node.id), now_ms=now, listened_s=listened_s, limits=limits))
                for node in nodes
            )
            return [before.id for before, after in judged if before != after]

        ids = await self._database.read(find)
        if not ids:
            return []

        async def change(tx: Tx) -> list[tuple[Node, Node]]:
            await check_fence(tx, lease)
            now = await store_now_ms(tx)
            changes = []
            for before in (await lock_nodes(tx, ids)).values():
                judged = judge_node(before, by_id.get(before.id), now_ms=now, listened_s=listened_s, limits=limits)
                after = await update_node(tx, before, judged)
                if after.status is not before.status:
                    changes.append((before, after))
                    await _announce(tx, before, after)
            return changes

        return await self._database.write(change)


async def _announce(tx: Tx, before: Node, after: Node) -> None:
    detail = {"name": after.name, "was": before.status.value, "reason": after.presence_reason}
    await append_event(tx, actor="health", action=f"node.{after.status.value}", subject=after.id, detail=detail)
