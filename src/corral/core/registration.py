"""Who is this that registers? Decided from what the store holds, before anything is written.

The secret a Corral worker keeps on its disk is its identity; the name is only a label for people. A LocalAI worker
has no secret, so for it the name has to do. Approval belongs to an identity: whoever comes with another secret, or
with none, under the name of an approved machine waits for approval like a stranger.
"""

from dataclasses import dataclass
from typing import Literal

from corral.core.nodes import Node, NodeClaim
from corral.core.presence import Presence, PresenceEvent


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
    """A machine that is away, or was wiped, comes back under its name with a new secret."""

    node: Node
    approved: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Literal["name_taken", "not_recognised"]
    message: str
    holder: Node | None = None


RegistrationDecision = Welcome | Return | Replace | Refuse


def decide_registration(
    claim: NodeClaim, *, same_key: Node | None, same_name: Node | None, may_join: bool, auto_approve: bool
) -> RegistrationDecision:
    """`may_join`: the caller showed a valid registration token."""
    if same_key is not None:
        if same_name is not None and same_name.id != same_key.id:
            return Refuse("name_taken", _taken(claim.name), same_name)
        event = PresenceEvent.REGISTERED if claim.instance == same_key.instance else PresenceEvent.RESTARTED
        return Return(same_key, event, approved=same_key.approved or (auto_approve and may_join))
    if not may_join:
        return Refuse(
            "not_recognised",
            "this machine is not known here (it may have been removed); join again with a registration token",
        )
    if same_name is None:
        return Welcome(approved=auto_approve)
    if same_name.key_hash is None and claim.key_hash is None:
        event = PresenceEvent.RESTARTED if same_name.presence is Presence.LEFT else PresenceEvent.REGISTERED
        return Return(same_name, event, approved=same_name.approved or auto_approve)
    if same_name.presence in (Presence.LIVE, Presence.SUSPECT, Presence.JOINING):
        return Refuse("name_taken", _taken(claim.name), same_name)
    return Replace(same_name, approved=auto_approve)


def _taken(name: str) -> str:
    return (
        f"another machine is registered as {name!r} and has not left. Start this one under another name (--name),"
        " or remove the other one first"
    )
