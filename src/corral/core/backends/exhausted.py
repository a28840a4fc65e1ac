"""When desired state tries again what failed until its retries were exhausted: what was asked for does not expire."""

from dataclasses import dataclass

from corral.core.backends.intents import Intent
from corral.core.nodes.node import Node

FREED_SHARE = 100
"""Of a disk this part must have become free to be worth another try."""
FREED_BYTES = 1 << 30
"""The same for a disk of unknown size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedRetry:
    again_after_ms: int
    on_change_after_ms: int
    """When something has changed that may help."""


def exhausted_retry(rest_s: float) -> ExhaustedRetry:
    return ExhaustedRetry(again_after_ms=int(rest_s * 1000), on_change_after_ms=int(min(60.0, rest_s) * 1000))


DEFAULT_EXHAUSTED_RETRY = exhausted_retry(3600.0)


def may_retry(
    failed: Intent,
    node: Node,
    *,
    now_ms: int,
    patience: ExhaustedRetry,
    galleries_changed_ms: int,
    changes_version: bool,
) -> bool:
    """`changes_version`: another version serves meanwhile, and each try may interrupt it. Then passing time alone is no
    reason."""
    ended_ms = failed.finished_at or 0
    if now_ms - ended_ms < patience.on_change_after_ms:
        return False
    came_back = node.presence_since > ended_ms
    if came_back or galleries_changed_ms > ended_ms or has_room_now(failed, node) or is_better_now(failed, node):
        return True
    return not changes_version and now_ms - ended_ms >= patience.again_after_ms


def is_better_now(failed: Intent, node: Node) -> bool:
    """A condition that its node had then has ended."""
    return bool(failed.conditions_at_end - {condition.kind for condition in node.conditions})


def has_room_now(failed: Intent, node: Node) -> bool:
    """Its node's disk has become emptier since."""
    if failed.free_disk_at_end is None or node.available_disk is None:
        return False
    freed = node.available_disk - failed.free_disk_at_end
    return freed > 0 and freed >= (node.total_disk / FREED_SHARE if node.total_disk else FREED_BYTES)
