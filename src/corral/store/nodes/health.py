"""Input and results of health checks: bus round trips and heartbeat ages become presence."""

from collections.abc import Iterable
from dataclasses import replace

from corral.core.nodes.health import BusProbe, HealthRecord, health_record_of, judge_health, with_health_record
from corral.core.nodes.node import Node, NodeId, NodeType
from corral.core.nodes.presence import Limits, Presence, PresenceEvent, next_presence
from corral.store.access.audit_events import append_event
from corral.store.engine.database import Database, Tx
from corral.store.engine.leases import Lease, check_fence
from corral.store.nodes.node_rows import lock_nodes, store_now_ms, update_node


class HealthStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_health_records(self) -> tuple[int, list[HealthRecord]]:
        """The store's time, and every node's health record."""

        async def body(tx: Tx) -> tuple[int, list[HealthRecord]]:
            rows = await tx.fetch(
                "SELECT id, node_type, approved, epoch, instance, presence, presence_reason, presence_since,"
                " last_heartbeat, bus_answered, bus_failures, bus_no_responders FROM nodes WHERE removed_at IS NULL"
            )
            records = [
                HealthRecord(
                    node_id=NodeId(row["id"]),
                    node_type=NodeType(row["node_type"]),
                    approved=bool(row["approved"]),
                    epoch=row["epoch"],
                    reports_epoch=row["instance"] is not None,
                    presence=Presence(row["presence"]),
                    presence_reason=row["presence_reason"],
                    presence_since=row["presence_since"],
                    last_heartbeat=row["last_heartbeat"],
                    bus_answered=bool(row["bus_answered"]),
                    bus_failures=row["bus_failures"],
                    bus_no_responders=bool(row["bus_no_responders"]),
                )
                for row in rows
            ]
            return await store_now_ms(tx), records

        return await self._database.read(body)

    async def suspect(self, node_id: NodeId, *, reason: str) -> bool:
        """Mark a node that nobody listens for on the bus: it gets no new work until it is proven healthy again."""

        async def change(tx: Tx) -> bool:
            before = (await lock_nodes(tx, [node_id])).get(node_id)
            if before is None or before.presence is not Presence.LIVE:
                return False
            presence = next_presence(before.presence, PresenceEvent.ONE_PATH_SILENT)
            after = await update_node(tx, before, replace(before, presence=presence, presence_reason=reason))
            await _append_status_event(tx, before, after)
            return True

        return await self._database.write(change)

    async def record(
        self,
        ids: Iterable[NodeId],
        probes: Iterable[BusProbe],
        *,
        lease: Lease,
        listened_s: float,
        limits: Limits,
        others_live: bool = False,
    ) -> list[tuple[Node, Node]]:
        """Judge the nodes on their current rows; return (before, after) of those whose status changed."""
        by_id = {probe.node_id: probe for probe in probes}

        async def change(tx: Tx) -> list[tuple[Node, Node]]:
            await check_fence(tx, lease)
            now = await store_now_ms(tx)
            changes = []
            for before in (await lock_nodes(tx, ids)).values():
                record = judge_health(
                    health_record_of(before),
                    by_id.get(before.id),
                    now_ms=now,
                    listened_s=listened_s,
                    limits=limits,
                    others_live=others_live,
                )
                after = await update_node(tx, before, with_health_record(before, record))
                if after.status is not before.status:
                    changes.append((before, after))
                    await _append_status_event(tx, before, after)
            return changes

        return await self._database.write(change)


async def _append_status_event(tx: Tx, before: Node, after: Node) -> None:
    was = "new" if before.presence is Presence.JOINING and before.epoch == 1 else before.status.value
    detail = {"name": after.name, "was": was, "reason": after.presence_reason}
    await append_event(tx, actor="health", action=f"node.{after.status.value}", subject=after.id, detail=detail)
