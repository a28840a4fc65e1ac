"""Registration, heartbeats and deregistration of workers."""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from corral.core.nodes.conditions import Condition
from corral.core.nodes.names import looks_like
from corral.core.nodes.node import NameClaim, Node, NodeClaim, NodeId, NodeUsage, with_new_process
from corral.core.nodes.presence import Presence, PresenceEvent, next_presence
from corral.core.nodes.registration import (
    SEEN_EVERY_MS,
    NameTaken,
    Refuse,
    RegisterAgain,
    RegisterNew,
    Replace,
    add_claim,
    decide_registration,
    find_claim,
    is_bound_to,
)
from corral.store.access.audit_events import append_event
from corral.store.engine.database import Database, Tx
from corral.store.nodes.bus_credentials import record_bus_credential, revoke_bus_credentials
from corral.store.nodes.node_rows import (
    COLUMNS,
    SELECT_NODE,
    encode_conditions,
    insert_node,
    lock_node,
    lock_nodes,
    read_node_row,
    store_now_ms,
    update_node,
)

ELSEWHERE = "heartbeats with the registration token come from"


@dataclass(frozen=True, slots=True)
class Registered:
    node: Node
    new_process: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    node_id: NodeId
    usage: NodeUsage
    instance: str | None = None
    secret_hash: str = ""
    joined: bool = False
    """Whether the sender showed a registration token: a LocalAI worker has no secret of its own."""
    conditions: tuple[Condition, ...] | None = None
    """None if the heartbeat does not report them."""
    source_address: str | None = None
    """The address it was sent from."""


@dataclass(frozen=True, slots=True)
class HeartbeatOutcome:
    """The result of one heartbeat. `node` is the node before it; None if there is no such node."""

    node: Node | None
    denied: bool = False
    fenced: bool = False

    @property
    def accepted(self) -> bool:
        return self.node is not None and not self.denied and not self.fenced


@dataclass(frozen=True, slots=True)
class Claimed:
    """The machine claims the name of `node` and waits until an administrator decides."""

    node: Node
    claim: NameClaim


OnRestart = Callable[[Tx, NodeId], Awaitable[None]]
"""Runs in the transaction that registers the new process of a worker that restarted."""


class RegistrationStore:
    def __init__(self, database: Database, *, on_restart: OnRestart) -> None:
        self._database = database
        self._on_restart = on_restart

    async def register(
        self,
        claim: NodeClaim,
        *,
        new_id: str,
        may_join: bool,
        auto_approve: bool,
        bus_key: str | None = None,
        bus_ttl_s: float = 0.0,
    ) -> Registered | Claimed | Refuse:
        """`bus_key`: the public key of the node's next bus credential; recorded only if the node is approved."""

        async def body(tx: Tx) -> Registered | Claimed | Refuse:
            same_key, same_name = await _find(tx, claim)
            is_new_name = same_name is None and (same_key is None or same_key.name != claim.name)
            decision = decide_registration(
                claim,
                same_key=same_key,
                same_name=same_name,
                may_join=may_join,
                auto_approve=auto_approve,
                look_alike=await _find_look_alike(tx, claim, same_key) if is_new_name else None,
            )
            match decision:
                case Refuse():
                    if decision.holder is not None:
                        await self._record_conflict(tx, decision.holder, claim)
                    return decision
                case RegisterNew():
                    registered = Registered(await self._add(tx, claim, NodeId(new_id), decision.approved), True)
                case RegisterAgain():
                    registered = await self._return(tx, claim, decision)
                case NameTaken():
                    return await self._claim(tx, decision.node, claim, new_id)
                case Replace():
                    again = RegisterAgain(decision.node, PresenceEvent.RESTARTED, approved=False)
                    registered = await self._return(tx, claim, again)
            if bus_key is not None and registered.node.approved:
                await record_bus_credential(tx, registered.node.id, bus_key, ttl_s=bus_ttl_s)
            return registered

        return await self._database.write(body)

    async def _claim(self, tx: Tx, node: Node, claim: NodeClaim, new_id: str) -> Claimed | Refuse:
        """Record the claim. The node itself stays as it is until an administrator decides."""
        before = node
        claims = add_claim(node.claims, claim, new_id=new_id, now_ms=await store_now_ms(tx))
        made = find_claim(claims, claim)
        is_new = find_claim(node.claims, claim) is None
        if node.conflict_message == _conflict_with(claim):
            # The claim contains the same and more; if it is rejected, no warning must remain.
            node = replace(node, conflict_message=None, conflict_at=None)
        await update_node(tx, before, replace(node, claims=claims))
        if made is None:
            return Refuse(
                "name_taken",
                f"{len(claims)} other machines already claim the name {node.name!r}; an administrator must decide first"
                f" (`corral nodes show {node.name}`). Or start this worker with another name (--name)",
            )
        if made.rejected_at is not None:
            return Refuse(
                "name_taken",
                f"an administrator rejected this machine's claim on the name {node.name!r}."
                " Start the worker with another name (--name)",
            )
        if is_new:
            detail = {"name": node.name, "claim": made.id, "address": made.source_address}
            await append_event(tx, actor=f"worker {node.name}", action="node.claimed", subject=node.id, detail=detail)
        return Claimed(node, made)

    async def _record_conflict(self, tx: Tx, holder: Node, claim: NodeClaim) -> None:
        message = _conflict_with(claim)
        now = await store_now_ms(tx)
        await update_node(tx, holder, replace(holder, conflict_message=message, conflict_at=now))
        if holder.conflict_message != message:
            detail = {"message": message, "name": claim.name}
            await append_event(
                tx, actor=f"worker {claim.name}", action="node.conflict", subject=holder.id, detail=detail
            )

    async def _add(self, tx: Tx, claim: NodeClaim, node_id: NodeId, approved: bool) -> Node:
        now = await store_now_ms(tx)
        node = Node(
            id=node_id,
            name=claim.name,
            approved=approved,
            drain_requested=False,
            worker_draining=False,
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
            presence_since=now,
            max_replicas_reported=claim.max_replicas_per_model,
            vram_budget_reported=claim.vram_budget,
            worker_labels=claim.labels,
            **_reported(claim),
        )
        await insert_node(tx, node)
        detail = {"name": node.name, "approved": approved, "address": node.http_address or node.address}
        await append_event(tx, actor=f"worker {node.name}", action="node.registered", subject=node.id, detail=detail)
        return node

    async def _return(self, tx: Tx, claim: NodeClaim, decision: RegisterAgain) -> Registered:
        node, new_process = decision.node, decision.event is PresenceEvent.RESTARTED
        presence = next_presence(node.presence, decision.event)
        if presence is Presence.GONE and not decision.approved:
            presence = Presence.JOINING  # its presence cannot be checked before it is approved
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
            after = with_new_process(after)
            await revoke_bus_credentials(tx, node.id)
            detail = {"epoch": after.epoch, "address": after.http_address or after.address}
            await append_event(tx, actor=f"worker {claim.name}", action="node.returned", subject=node.id, detail=detail)
            await self._on_restart(tx, node.id)
        return Registered(await update_node(tx, node, after), new_process)

    async def record_heartbeats(self, heartbeats: Sequence[Heartbeat]) -> list[HeartbeatOutcome]:
        """Record many heartbeats in one transaction. Health checks decide the status, not this."""

        async def body(tx: Tx) -> list[HeartbeatOutcome]:
            known = await lock_nodes(tx, (heartbeat.node_id for heartbeat in heartbeats))
            outcomes = [_judge_heartbeat(heartbeat, known.get(heartbeat.node_id)) for heartbeat in heartbeats]
            accepted = [heartbeat for heartbeat, outcome in zip(heartbeats, outcomes, strict=True) if outcome.accepted]
            await tx.execute_many(
                "UPDATE nodes SET last_heartbeat = now_ms(), available_vram = coalesce($2, available_vram),"
                " total_vram = coalesce($3, total_vram), available_ram = coalesce($4, available_ram),"
                " available_disk = coalesce($5, available_disk), total_disk = coalesce($6, total_disk),"
                " gpu_vendor = coalesce($7, gpu_vendor), conditions = coalesce($8, conditions) WHERE id = $1",
                [
                    (
                        heartbeat.node_id,
                        heartbeat.usage.available_vram,
                        heartbeat.usage.total_vram,
                        heartbeat.usage.available_ram,
                        heartbeat.usage.available_disk,
                        heartbeat.usage.total_disk,
                        heartbeat.usage.gpu_vendor,
                        None if heartbeat.conditions is None else encode_conditions(heartbeat.conditions),
                    )
                    for heartbeat in accepted
                ],
            )
            await _record_conditions(tx, accepted, known)
            await _record_other_addresses(tx, heartbeats, outcomes)
            recorded: set[NodeId] = set()
            for heartbeat, outcome in zip(heartbeats, outcomes, strict=True):
                if outcome.fenced and outcome.node is not None and outcome.node.conflict_message is None:
                    if outcome.node.id in recorded:
                        continue
                    recorded.add(outcome.node.id)
                    message = "an older process of this node is still running (was its data directory copied?)"
                    node = outcome.node
                    now = await store_now_ms(tx)
                    await update_node(tx, node, replace(node, conflict_message=message, conflict_at=now))
                    detail = {"message": message, "instance": heartbeat.instance}
                    await append_event(tx, actor="worker", action="node.conflict", subject=node.id, detail=detail)
            return outcomes

        return await self._database.write(body)

    async def set_draining(self, node_id: str, draining: bool) -> Node:
        """Record that the worker itself is draining; a drain requested by an administrator is separate."""

        async def body(tx: Tx) -> Node:
            node = await lock_node(tx, node_id)
            return await update_node(tx, node, replace(node, worker_draining=draining))

        return await self._database.write(body)

    async def deregister(self, node_id: str) -> Node:
        async def body(tx: Tx) -> Node:
            node = await lock_node(tx, node_id)
            if node.presence is not Presence.LEFT:
                await append_event(tx, actor=f"worker {node.name}", action="node.left", subject=node.id)
            presence = next_presence(node.presence, PresenceEvent.DEREGISTERED)
            reason = "deregistered by its worker"
            return await update_node(tx, node, replace(node, presence=presence, presence_reason=reason))

        return await self._database.write(body)


async def _record_other_addresses(
    tx: Tx, heartbeats: Sequence[Heartbeat], outcomes: Sequence[HeartbeatOutcome]
) -> None:
    """Show administrators why heartbeats of a LocalAI worker from a new address are rejected."""
    denied = {
        outcome.node.id: (outcome.node, heartbeat.source_address)
        for heartbeat, outcome in zip(heartbeats, outcomes, strict=True)
        if outcome.denied and heartbeat.joined and outcome.node is not None and not outcome.node.speaks_corral
    }
    for node, source_address in denied.values():
        now = await store_now_ms(tx)
        known = node.conflict_message if (node.conflict_message or "").startswith(ELSEWHERE) else None
        if known is not None and now - (node.conflict_at or 0) < SEEN_EVERY_MS:
            continue
        message = (
            f"{ELSEWHERE} {source_address}, but the node registered from {node.registered_from}: they are rejected. If"
            " it is the same machine, restart its worker, which then claims the name, and approve the claim"
        )
        await update_node(tx, node, replace(node, conflict_message=message, conflict_at=now))
        if known is None:
            detail = {"message": message, "address": source_address}
            await append_event(tx, actor="worker", action="node.conflict", subject=node.id, detail=detail)


async def _record_conditions(tx: Tx, heartbeats: Sequence[Heartbeat], known: Mapping[NodeId, Node]) -> None:
    """Add an audit event when a condition begins or ends, but not when only its figures change."""
    for heartbeat in heartbeats:
        node = known[heartbeat.node_id]
        if heartbeat.conditions is None or _kinds(heartbeat.conditions) == _kinds(node.conditions):
            continue
        await tx.execute("UPDATE nodes SET changed_at = now_ms() WHERE id = $1", node.id)
        detail = {"conditions": [f"{condition.kind}: {condition.reason}" for condition in heartbeat.conditions]}
        await append_event(tx, actor=f"worker {node.name}", action="node.conditions", subject=node.id, detail=detail)


def _kinds(conditions: Sequence[Condition]) -> set[str]:
    return {condition.kind for condition in conditions}


def _conflict_with(claim: NodeClaim) -> str:
    return f"a second machine at {claim.http_address or claim.address or 'an unknown address'} tried to register"


async def _find(tx: Tx, claim: NodeClaim) -> tuple[Node | None, Node | None]:
    """The node with this secret, and the node with this name.

    One statement finds both: between two statements, another registration of the same machine could appear, which
    would then count as another machine with its name."""
    rows = await tx.fetch(
        f"{SELECT_NODE} WHERE (key_hash = $1 OR name = $2) AND removed_at IS NULL ORDER BY id FOR UPDATE",
        claim.key_hash,
        claim.name,
    )
    nodes = [read_node_row(row) for row in rows]
    same_key = next((node for node in nodes if claim.key_hash is not None and node.key_hash == claim.key_hash), None)
    return same_key, next((node for node in nodes if node.name == claim.name), None)


def _reported(claim: NodeClaim) -> dict[str, Any]:
    """The fields that a claim and a node share. An unknown value replaces a known one, as reported."""
    same = {field.name for field in fields(NodeClaim)} & set(COLUMNS)
    return {name: getattr(claim, name) for name in same if name != "name"}


async def _find_look_alike(tx: Tx, claim: NodeClaim, same_key: Node | None) -> str | None:
    """The name of a node that looks like the claimed one. Called only for a new name, which is rare. A node that got
    the very same name since is not one: the insert then conflicts and is retried."""
    rows = await tx.fetch("SELECT id, name FROM nodes WHERE removed_at IS NULL AND name <> $1", claim.name)
    form = looks_like(claim.name)
    own = same_key.id if same_key is not None else None
    return next((row["name"] for row in rows if row["id"] != own and looks_like(row["name"]) == form), None)


def may_act_for(node: Node, *, secret_hash: str, joined: bool, source_address: str | None) -> bool:
    """Whether the sender may act for the node: it must show the node's secret. A LocalAI worker has none; it must show
    the registration token, from the address it registered from."""
    if node.key_hash is None:
        return joined and is_bound_to(node, source_address)
    return hmac.compare_digest(node.key_hash, secret_hash)


def _judge_heartbeat(heartbeat: Heartbeat, node: Node | None) -> HeartbeatOutcome:
    if node is None:
        return HeartbeatOutcome(None)
    if not may_act_for(
        node, secret_hash=heartbeat.secret_hash, joined=heartbeat.joined, source_address=heartbeat.source_address
    ):
        return HeartbeatOutcome(node, denied=True)
    return HeartbeatOutcome(node, fenced=node.instance is not None and heartbeat.instance != node.instance)
