"""Registration: which node a worker is, decided from what the store has, before anything is written.

The secret on the disk of a Corral worker is its identity; the name is only a label. A LocalAI worker has no secret, so
its name and the address it registers from identify it. Approval belongs to an identity: a worker with another secret,
with none, or from another address under the name of an approved node only *claims* that name. The approved node stays
until an administrator lets the other one replace it.
"""

from dataclasses import dataclass, replace
from typing import Literal

from corral.core.nodes.addresses import same_origin
from corral.core.nodes.node import NameClaim, Node, NodeClaim
from corral.core.nodes.presence import Presence, PresenceEvent

CLAIMS_MOST = 8
CLAIM_KEPT_MS = 24 * 3600 * 1000
SEEN_EVERY_MS = 30_000
"""A repeated claim is stored at most this often."""


@dataclass(frozen=True, slots=True)
class RegisterNew:
    """A new name: a new node."""

    approved: bool


@dataclass(frozen=True, slots=True)
class RegisterAgain:
    """A known identity. `event`: whether it is a renewal or a new worker process."""

    node: Node
    event: PresenceEvent
    approved: bool


@dataclass(frozen=True, slots=True)
class Replace:
    """Replaces a node that was never approved and is offline: there is no identity to protect."""

    node: Node


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another machine, or the same one after it was wiped, uses the name of an approved node."""

    node: Node


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Literal["name_taken", "not_recognised"]
    message: str
    holder: Node | None = None


RegistrationDecision = RegisterNew | RegisterAgain | Replace | NameTaken | Refuse


def decide_registration(
    claim: NodeClaim,
    *,
    same_key: Node | None,
    same_name: Node | None,
    may_join: bool,
    auto_approve: bool,
    look_alike: str | None = None,
) -> RegistrationDecision:
    """`may_join`: the request has a valid registration token. `look_alike`: the name of another node that looks like
    this one."""
    if same_key is not None:
        if same_name is not None and same_name.id != same_key.id:
            return Refuse("name_taken", _taken(claim.name), same_name)
        if look_alike is not None and claim.name != same_key.name:
            return Refuse("name_taken", _alike(claim.name, look_alike))
        event = PresenceEvent.REGISTERED if claim.instance == same_key.instance else PresenceEvent.RESTARTED
        return RegisterAgain(same_key, event, approved=same_key.approved or (auto_approve and may_join))
    if not may_join:
        return Refuse(
            "not_recognised",
            "this node is unknown (it may have been removed); join again with a registration token",
        )
    if same_name is None:
        return (
            RegisterNew(approved=auto_approve)
            if look_alike is None
            else Refuse("name_taken", _alike(claim.name, look_alike))
        )
    if not same_name.speaks_corral and claim.key_hash is None:
        if not is_bound_to(same_name, claim.registered_from):
            return NameTaken(same_name)
        event = PresenceEvent.RESTARTED if same_name.presence is Presence.LEFT else PresenceEvent.REGISTERED
        return RegisterAgain(same_name, event, approved=same_name.approved or auto_approve)
    if same_name.presence in (Presence.LIVE, Presence.SUSPECT, Presence.JOINING):
        return Refuse("name_taken", _taken(claim.name), same_name)
    return NameTaken(same_name) if same_name.approved else Replace(same_name)


def is_bound_to(node: Node, source_address: str | None) -> bool:
    """Whether a LocalAI worker, which has no secret, may act as this node from that address."""
    return node.registered_from is None or source_address is None or same_origin(node.registered_from, source_address)


def add_claim(claims: tuple[NameClaim, ...], claim: NodeClaim, *, new_id: str, now_ms: int) -> tuple[NameClaim, ...]:
    """Adds or renews the claim, and drops those older than a day. A claim beyond the limit is not added."""
    fresh = tuple(one for one in claims if now_ms - max(one.seen_at, one.rejected_at or 0) < CLAIM_KEPT_MS)
    known = find_claim(fresh, claim)
    if known is not None:
        seen = replace(known, seen_at=now_ms) if now_ms - known.seen_at >= SEEN_EVERY_MS else known
        return tuple(seen if one is known else one for one in fresh)
    if len(fresh) >= CLAIMS_MOST:
        return fresh
    made = NameClaim(
        id=new_id,
        key_hash=claim.key_hash,
        source_address=claim.registered_from or "",
        http_address=claim.http_address,
        made_at=now_ms,
        seen_at=now_ms,
    )
    return (*fresh, made)


def find_claim(claims: tuple[NameClaim, ...], claim: NodeClaim) -> NameClaim | None:
    def fits(one: NameClaim) -> bool:
        if claim.key_hash is not None or one.key_hash is not None:
            return one.key_hash == claim.key_hash
        return same_origin(one.source_address, claim.registered_from or "")

    return next((one for one in claims if fits(one)), None)


def _taken(name: str) -> str:
    return (
        f"another machine is registered as {name!r} and has not deregistered. Choose another name for this one"
        " (--name), or remove the other node first"
    )


def _alike(name: str, other: str) -> str:
    return f"the name {name!r} looks like {other!r}, which is the name of another node. Choose another name (--name)"
