"""What workers say of themselves: registration, heartbeats, good-bye."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from corral.core.nodes import Node, NodeClaim, NodeId, Usage
from corral.core.presence import Presence, PresenceEvent, next_presence
from corral.core.registration import Refuse, Replace, Return, Welcome, decide_registration
from corral.store.database import Database, Tx
from corral.store.events import append_event
from corral.store.fleet import revoke_bus_key
from corral.store.node_rows import (
    COLUMNS,
    SELECT_NODE,
    insert_node,
    lock_node,
    lock_nodes,
    read_node_row,
    store_now_ms,
    update_node,
)


@dataclass(frozen=True, slots=True)
class Registered:
    node: Node
    new_process: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    node_id: NodeId
    usage: Usage
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class BeatOutcome:
    """What became of one heartbeat. `node` is as it was before; None means there is no such node."""

    node: Node | None
    fenced: bool = False


class RegistrationStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self, claim: NodeClaim, *, new_id: str, may_join: bool, auto_approve: bool
    ) -> Registered | Refuse:
        async def body(tx: Tx) -> Registered | Refuse:
            same_key = None
            if claim.key_hash is not None:
                row = await tx.fetch_one(
                    f"{SELECT_NODE} WHERE key_hash = $1 AND removed_at IS NULL FOR UPDATE", claim.key_hash
                )
                same_key = read_node_row(row) if row else None
            row = await tx.fetch_one(f"{SELECT_NODE} WHERE name = $1 AND removed_at IS NULL FOR UPDATE", claim.name)
            same_name = read_node_row(row) if row else None
            decision = decide_registration(
                claim, same_key=same_key, same_name=same_name, may_join=may_join, auto_approve=auto_approve
            )
            match decision:
                case Refuse():
                    if decision.holder is not None:
                        await self._record_conflict(tx, decision.holder, claim)
                    return decision
                case Welcome():
                    return Registered(await self._add(tx, claim, NodeId(new_id), approved=decision.approved), True)
                case Return():
                    return await self._take_back(tx, claim, decision)
                case Replace():
                    node = decision.node
                    await revoke_bus_key(tx, node.bus_public_key)
                    # Its identity is new, so its approval is; what an administrator set on the name stays.
                    back = Return(replace(node, approved=False), PresenceEvent.RESTARTED, decision.approved)
                    return await self._take_back(tx, claim, back)

        return await self._database.write(body)

    async def _record_conflict(self, tx: Tx, holder: Node, claim: NodeClaim) -> None:
        message = f"a second machine at {claim.http_address or claim.address or 'an unknown address'} tried to register"
        now = await store_now_ms(tx)
        await update_node(tx, holder, replace(holder, conflict_message=message, conflict_at=now))
        if holder.conflict_message != message:
            detail = {"message": message, "name": claim.name}
            await append_event(
                tx, actor=f"worker {claim.name}", action="node.conflict", subject=holder.id, detail=detail
            )

    async def _add(self, tx: Tx, claim: NodeClaim, node_id: NodeId, *, approved: bool) -> Node:
        now = await store_now_ms(tx)
        node = Node(
            id=node_id,
            name=claim.name,
            node_type=claim.node_type,
            approved=approved,
            drain_wanted=False,
            presence=Presence.JOINING,
            presence_reason="registered; not yet seen on the message bus",
            epoch=1,
            max_replicas_override=None,
            vram_budget_override=None,
            operator_labels={},
            conflict_message=None,
            conflict_at=None,
            last_heartbeat=now,
            bus_answered=False,
            bus_failures=0,
            bus_no_responders=False,
            created_at=now,
            changed_at=now,
            max_replicas_reported=claim.max_replicas_per_model,
            vram_budget_reported=claim.vram_budget,
            worker_labels=claim.labels,
            **_reported(claim),
        )
        await insert_node(tx, node)
        detail = {"name": node.name, "approved": approved, "address": node.http_address or node.address}
        await append_event(tx, actor=f"worker {node.name}", action="node.registered", subject=node.id, detail=detail)
        return node

    async def _take_back(self, tx: Tx, claim: NodeClaim, decision: Return) -> Registered:
        node, new_process = decision.node, decision.event is PresenceEvent.RESTARTED
        presence = next_presence(node.presence, decision.event)
        after = replace(
            node,
            name=claim.name,
            approved=decision.approved,
            presence=presence,
            presence_reason=(
                node.presence_reason if presence is node.presence else "registered; not yet seen on the message bus"
            ),
            epoch=node.epoch + (1 if new_process else 0),
            max_replicas_reported=claim.max_replicas_per_model,
            vram_budget_reported=claim.vram_budget,
            worker_labels=claim.labels,
            last_heartbeat=await store_now_ms(tx),
            **_reported(claim),
        )
        if new_process:
            after = replace(after, bus_answered=False, bus_failures=0, bus_no_responders=False)
            if node.bus_public_key != claim.bus_public_key:
                await revoke_bus_key(tx, node.bus_public_key)
            detail = {"epoch": after.epoch, "address": after.http_address or after.address}
            await append_event(tx, actor=f"worker {claim.name}", action="node.returned", subject=node.id, detail=detail)
        return Registered(await update_node(tx, node, after), new_process)

    async def beat(self, beats: Sequence[Beat]) -> list[BeatOutcome]:
        """Many heartbeats in one transaction. Status is decided by the health pass, not here."""

        async def body(tx: Tx) -> list[BeatOutcome]:
            known = await lock_nodes(tx, (beat.node_id for beat in beats))
            outcomes = [_judge_beat(beat, known.get(beat.node_id)) for beat in beats]
            accepted = [
                beat
                for beat, outcome in zip(beats, outcomes, strict=True)
                if outcome.node is not None and not outcome.fenced
            ]
            await tx.execute_many(
                "UPDATE nodes SET last_heartbeat = now_ms(), available_vram = coalesce($2, available_vram),"
                " total_vram = coalesce($3, total_vram), available_ram = coalesce($4, available_ram),"
                " available_disk = coalesce($5, available_disk), total_disk = coalesce($6, total_disk),"
                " gpu_vendor = coalesce($7, gpu_vendor) WHERE id = $1",
                [
                    (
                        beat.node_id,
                        beat.usage.available_vram,
                        beat.usage.total_vram,
                        beat.usage.available_ram,
                        beat.usage.available_disk,
                        beat.usage.total_disk,
                        beat.usage.gpu_vendor,
                    )
                    for beat in accepted
                ],
            )
            for beat, outcome in zip(beats, outcomes, strict=True):
                if outcome.fenced and outcome.node is not None and outcome.node.conflict_message is None:
                    message = "an older process of this machine still runs somewhere (a copied data directory?)"
                    node = outcome.node
                    now = await store_now_ms(tx)
                    await update_node(tx, node, replace(node, conflict_message=message, conflict_at=now))
                    detail = {"message": message, "instance": beat.instance}
                    await append_event(tx, actor="worker", action="node.conflict", subject=node.id, detail=detail)
            return outcomes

        return await self._database.write(body)

    async def deregister(self, node_id: str) -> Node:
        async def change(tx: Tx, node: Node) -> Node:
            if node.presence is not Presence.LEFT:
                await append_event(tx, actor=f"worker {node.name}", action="node.left", subject=node.id)
            presence = next_presence(node.presence, PresenceEvent.DEREGISTERED)
            return replace(node, presence=presence, presence_reason="left by itself")

        async def body(tx: Tx) -> Node:
            node = await lock_node(tx, node_id)
            return await update_node(tx, node, await change(tx, node))

        return await self._database.write(body)


def _reported(claim: NodeClaim) -> dict[str, Any]:
    """The fields a claim shares with a node row. Unknown replaces known: the node itself says so."""
    same = {field.name for field in fields(NodeClaim)} & set(COLUMNS)
    return {name: getattr(claim, name) for name in same if name != "name"}


def _judge_beat(beat: Beat, node: Node | None) -> BeatOutcome:
    fenced = node is not None and node.instance is not None and beat.instance != node.instance
    return BeatOutcome(node, fenced)
