"""Who is this that registers? Decided from what the store holds, before anything is written.

The secret a Corral worker keeps on its disk is its identity; the name is only a label for people. A LocalAI worker
has no secret, so for it the name and the address it registers from have to do. Approval belongs to an identity: whoever
comes with another secret, with none, or from another address under the name of an approved machine only *claims* to be
it. The machine that was approved stays what it is until an administrator says that the other one replaces it.
"""

from dataclasses import dataclass, replace
from typing import Literal

from corral.core.nodes.addresses import same_origin
from corral.core.nodes.node import NameClaim, Node, NodeClaim
from corral.core.nodes.presence import Presence, PresenceEvent

CLAIMS_MOST = 8
CLAIM_KEPT_MS = 24 * 3600 * 1000
SEEN_EVERY_MS = 30_000
"""A claim that is made again and again is written down at most this often."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """A name never seen."""

    approved: bool


@dataclass(frozen=True, slots=True)
class Return:
    """The same identity again. `event` tells a renewal from a new process."""

    node: Node
    event: PresenceEvent
    approved: bool


@dataclass(frozen=True, slots=True)
class Replace:
    """Of a machine that was never approved, and is not there: the name has no identity to protect."""

    node: Node


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another machine, or the same one after it was wiped, under the name of one that was approved."""

    node: Node


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Literal["name_taken", "not_recognised"]
    message: str
    holder: Node | None = None


RegistrationDecision = Welcome | Return | Replace | NameTaken | Refuse


def decide_registration(
    claim: NodeClaim,
    *,
    same_key: Node | None,
    same_name: Node | None,
    may_join: bool,
    auto_approve: bool,
    look_alike: str | None = None,
) -> RegistrationDecision:
    """`may_join`: the caller showed a valid registration token. `look_alike`: another node's name that a person could
    take for this one."""
    if same_key is not None:
        if same_name is not None and same_name.id != same_key.id:
            return Refuse("name_taken", _taken(claim.name), same_name)
        if look_alike is not None and claim.name != same_key.name:
            return Refuse("name_taken", _alike(claim.name, look_alike))
        event = PresenceEvent.REGISTERED if claim.instance == same_key.instance else PresenceEvent.RESTARTED
        return Return(same_key, event, approved=same_key.approved or (auto_approve and may_join))
    if not may_join:
        return Refuse(
            "not_recognised",
            "this machine is not known here (it may have been removed); join again with a registration token",
        )
    if same_name is None:
        return (
            Welcome(approved=auto_approve)
            if look_alike is None
            else Refuse("name_taken", _alike(claim.name, look_alike))
        )
    if not same_name.speaks_corral and claim.key_hash is None:
        if not is_bound_to(same_name, claim.registered_from):
            return NameTaken(same_name)
        event = PresenceEvent.RESTARTED if same_name.presence is Presence.LEFT else PresenceEvent.REGISTERED
        return Return(same_name, event, approved=same_name.approved or auto_approve)
    if same_name.presence in (Presence.LIVE, Presence.SUSPECT, Presence.JOINING):
        return Refuse("name_taken", _taken(claim.name), same_name)
    return NameTaken(same_name) if same_name.approved else Replace(same_name)


def is_bound_to(node: Node, told_from: str | None) -> bool:
    """Whether a LocalAI worker, which has no secret, may speak for this node from there."""
    return node.registered_from is None or told_from is None or same_origin(node.registered_from, told_from)


def add_claim(claims: tuple[NameClaim, ...], claim: NodeClaim, *, new_id: str, now_ms: int) -> tuple[NameClaim, ...]:
    """With this one; without those nobody has made for a day. Where there are too many it is left out."""
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
        told_from=claim.registered_from or "",
        http_address=claim.http_address,
        made_at=now_ms,
        seen_at=now_ms,
    )
    return (*fresh, made)


def find_claim(claims: tuple[NameClaim, ...], claim: NodeClaim) -> NameClaim | None:
    def fits(one: NameClaim) -> bool:
        if claim.key_hash is not None or one.key_hash is not None:
            return one.key_hash == claim.key_hash
        return same_origin(one.told_from, claim.registered_from or "")

    return next((one for one in claims if fits(one)), None)


def _taken(name: str) -> str:
    return (
        f"another machine is registered as {name!r} and has not left. Start this one under another name (--name),"
        " or remove the other one first"
    )


def _alike(name: str, other: str) -> str:
    return (
        f"the name {name!r} looks like {other!r}, which another machine has. Start this one under another name (--name)"
    )
