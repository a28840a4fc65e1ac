"""When the policy reconciler retries an intent whose retries were exhausted: a desired state does not expire."""

from dataclasses import dataclass

from corral.core.backends.intents import Intent
from corral.core.nodes.node import Node

FREED_SHARE = 100
"""A retry is worthwhile once a hundredth of a small disk has been freed."""
FREED_BYTES = 1 << 30
"""The same, for a disk that is larger than a hundred times this, or of unknown size: many backends fit in there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedRetry:
    again_after_ms: int
    on_change_after_ms: int
    """How long after the failure a change that may help can lead to a retry."""


def exhausted_retry(every_s: float) -> ExhaustedRetry:
    """Retries every `every_s`, and at once after a change that may help, but not within 30 seconds of the failure."""
    return ExhaustedRetry(again_after_ms=int(every_s * 1000), on_change_after_ms=int(min(30.0, every_s) * 1000))


DEFAULT_EXHAUSTED_RETRY = exhausted_retry(3600.0)


def may_retry(
    failed: Intent,
    node: Node,
    *,
    now_ms: int,
    retry: ExhaustedRetry,
    galleries_changed_ms: int,
    changes_version: bool,
) -> bool:
    """`changes_version`: another version is serving. If the failed one had interrupted it, elapsed time alone is no
    reason to retry."""
    ended_ms = failed.finished_at or 0
    if failed.epoch_at_end is not None and node.epoch > failed.epoch_at_end:  # it registered again
        return True
    if now_ms - ended_ms < retry.on_change_after_ms:
        return False
    came_back = node.presence_since > ended_ms
    if came_back or galleries_changed_ms > ended_ms or has_more_disk(failed, node) or has_lost_condition(failed, node):
        return True
    interrupts = changes_version and failed.final
    return not interrupts and now_ms - ended_ms >= retry.again_after_ms


def next_retry_ms(failed: Intent, retry: ExhaustedRetry) -> int | None:
    """When elapsed time alone leads to a retry; None if only a change does."""
    return None if failed.final else (failed.finished_at or 0) + retry.again_after_ms


def has_lost_condition(failed: Intent, node: Node) -> bool:
    """Whether a condition that the node had at the failure has ended."""
    return bool(failed.conditions_at_end - {condition.kind for condition in node.conditions})


def has_more_disk(failed: Intent, node: Node) -> bool:
    """Whether enough of the node's disk has been freed since the failure."""
    if failed.free_disk_at_end is None or node.available_disk is None:
        return False
    freed = node.available_disk - failed.free_disk_at_end
    enough = min(FREED_BYTES, node.total_disk / FREED_SHARE) if node.total_disk else FREED_BYTES
    return freed > 0 and freed >= enough
