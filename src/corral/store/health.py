"""What the health pass found: bus round trips and heartbeat ages become presence."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from corral.core.nodes import Node, NodeId
from corral.core.presence import Evidence, Limits, classify_evidence, next_presence
from corral.store.database import Database, Tx
from corral.store.events import append_event
from corral.store.leases import Lease, check_fence
from corral.store.node_rows import SELECT_NODE, lock_nodes, read_node_row, store_now_ms, update_node


@dataclass(frozen=True, slots=True)
class BusProbe:
    node_id: NodeId
    answered: bool
    no_responders: bool = False


def judge_node(node: Node, probe: BusProbe | None, *, now_ms: int, listened_s: float, limits: Limits) -> Node:
    """The node as it should be stored after this round trip (None: we could not try)."""
    if probe is not None and probe.answered:
        node = replace(node, bus_answered=True, bus_failures=0, bus_no_responders=False)
    elif probe is not None:
        # Counted up to the limit only: a node that stays away is not rewritten at every pass.
        failures = min(node.bus_failures + 1, limits.bus_failures)
        node = replace(node, bus_failures=failures, bus_no_responders=probe.no_responders)
    beat_age_s = None if node.last_heartbeat is None else max(0, now_ms - node.last_heartbeat) / 1000
    verdict = classify_evidence(
        Evidence(
            beat_silence_s=None if beat_age_s is None else min(beat_age_s, listened_s),
            listened_s=listened_s,
            bus_answered=node.bus_answered,
            # A node that waits for approval has no way onto the bus: its heartbeat alone speaks for it.
            bus_failures=node.bus_failures if node.approved else limits.bus_failures,
            bus_no_responders=node.bus_no_responders or not node.approved,
        ),
        limits,
    )
    if verdict is None:
        return node
    presence = next_presence(node.presence, verdict.event)
    if presence is node.presence:
        # The same verdict again: its text may have aged ("silent for 40 s"), but nothing happened.
        return node
    return replace(node, presence=presence, presence_reason=verdict.reason)


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
