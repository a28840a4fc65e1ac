"""Machines as the store meets them: a name, a secret, a process, and what an administrator thinks of them."""

from dataclasses import dataclass, replace
from typing import Any

from corral.core.nodes.conditions import Condition
from corral.core.nodes.health import BusProbe, any_live, pick_changed
from corral.core.nodes.node import Node, NodeClaim, NodeId, NodeType, NodeUsage
from corral.core.nodes.presence import Limits
from corral.core.nodes.registration import Refuse
from corral.store.access.api_keys import hash_secret
from corral.store.engine.leases import Lease
from corral.store.nodes.registration import Claimed, Heartbeat, HeartbeatOutcome, Registered
from corral.store.stores import Stores
from corral.system import SystemIds

LISTENED_S = 3600.0
LIMITS = Limits()


@dataclass(frozen=True)
class Machine:
    name: str = "worker-1"
    secret: str | None = "secret-of-worker-1"
    """None for a LocalAI worker."""
    process: str = "process-1"

    def claim(self, **more: Any) -> NodeClaim:
        claim = NodeClaim(
            name=self.name,
            node_type=NodeType.BACKEND,
            address=f"{self.name}:50051",
            http_address=f"{self.name}:50050",
            key_hash=hash_secret(self.secret) if self.secret else None,
            instance=self.process if self.secret else None,
        )
        return replace(claim, **more)

    def restarted(self, process: str = "process-2") -> "Machine":
        return replace(self, process=process)

    def beat(
        self,
        node: Node,
        conditions: tuple[Condition, ...] | None = None,
        *,
        source_address: str | None = None,
        **usage: Any,
    ) -> Heartbeat:
        return Heartbeat(
            conditions=conditions,
            node_id=node.id,
            usage=NodeUsage(**usage),
            instance=self.process if self.secret else None,
            secret_hash=hash_secret(self.secret or "a registration token"),
            joined=self.secret is None,
            source_address=source_address,
        )


async def try_register(
    stores: Stores,
    machine: Machine,
    *,
    may_join: bool = True,
    auto_approve: bool = False,
    bus_key: str | None = None,
    bus_ttl_s: float = 3600.0,
    **claim: Any,
) -> Registered | Claimed | Refuse:
    return await stores.registration.register(
        machine.claim(**claim),
        new_id=SystemIds().uuid(),
        may_join=may_join,
        auto_approve=auto_approve,
        bus_key=bus_key,
        bus_ttl_s=bus_ttl_s,
    )


async def claim_name(stores: Stores, machine: Machine, **options: Any) -> Claimed:
    """Under the name of a machine that was approved."""
    outcome = await try_register(stores, machine, **options)
    assert isinstance(outcome, Claimed), outcome
    return outcome


async def replace_by(stores: Stores, machine: Machine, **options: Any) -> Node:
    """It claims the name, an administrator says that it is right, and it registers again."""
    claimed = await claim_name(stores, machine, **options)
    await stores.nodes.replace_identity(claimed.node.id, claimed.claim.id, actor="ann")
    return await register(stores, machine, **options)


async def register(stores: Stores, machine: Machine, **options: Any) -> Node:
    outcome = await try_register(stores, machine, **options)
    assert isinstance(outcome, Registered), outcome
    return outcome.node


async def beat(stores: Stores, machine: Machine, node: Node, **usage: Any) -> HeartbeatOutcome:
    (outcome,) = await stores.registration.record_heartbeats([machine.beat(node, **usage)])
    return outcome


async def judge(
    stores: Stores, *answered: NodeId, silent: tuple[NodeId, ...] = (), nobody: tuple[NodeId, ...] = (), **more: Any
) -> list[tuple[str, str]]:
    """One health pass by the holder of the lease; the statuses that changed, was and is. `as_epoch`: which of a
    node's processes answered, where it was not the current one."""
    lease = more.pop("lease", None) or await hold(stores)
    now_ms, pulses = await stores.health.read_health_records()
    epochs = {pulse.node_id: pulse.epoch for pulse in pulses} | more.pop("as_epoch", {})
    probes = [
        *(BusProbe(node, True, epoch=epochs.get(node)) for node in answered),
        *(BusProbe(node, False) for node in silent),
        *(BusProbe(node, False, no_responders=True) for node in nobody),
    ]
    listened_s = more.pop("listened_s", LISTENED_S)
    by_id = {probe.node_id: probe for probe in probes}
    how: Any = {"listened_s": listened_s, "limits": LIMITS, "others_live": any_live(pulses)}
    news = pick_changed(pulses, by_id, now_ms=now_ms, **how)
    changes = await stores.health.record(news, probes, lease=lease, **how)
    return [(before.status.value, after.status.value) for before, after in changes]


async def hold(stores: Stores, holder: str = "frontend-1", **options: Any) -> Lease:
    lease = await stores.leases.hold("health", holder, ttl_s=options.pop("ttl_s", 1e6), **options)
    assert lease is not None
    return lease


async def join(stores: Stores, machine: Machine, **options: Any) -> Node:
    """Registered, approved, seen on both paths: healthy."""
    node = await register(stores, machine, auto_approve=True, **options)
    await beat(stores, machine, node)
    await judge(stores, node.id)
    return await stores.nodes.read_one(node.id)


async def actions(stores: Stores, subject: str) -> list[str]:
    """What the audit log tells about one subject, oldest first."""
    events = await stores.events.read_latest(limit=1000)
    return [event.action for event in reversed(events) if event.subject == subject]
