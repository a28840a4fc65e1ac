"""How far a node is, from one message to the next: within one attempt nothing goes back, and nothing late counts."""

from dataclasses import dataclass, replace

from corral.core.backends.operations import NodeProgress, NodeProgressStatus

AFTER_WORKER = 1 << 52
"""Far above every number of a worker's run, and below what every reader of JSON takes."""
_UNDER_WAY = frozenset((NodeProgressStatus.DOWNLOADING, NodeProgressStatus.RUNNING_ON_WORKER))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressNews:
    sequence: int | None
    """Counts from 1 for each run on the worker; None from one that does not count. What a frontend does afterwards has
    higher numbers than any run."""
    phase: str
    file_name: str
    percentage: float
    bytes_done: int | None
    bytes_total: int | None
    rate_bytes_per_s: float | None
    eta_s: float | None


def after_worker(now_ms: int) -> int:
    """For what a frontend does with an order once the worker has done its part: whoever takes over counts on."""
    return AFTER_WORKER + now_ms


def is_after_worker(sequence: int) -> bool:
    return sequence >= AFTER_WORKER


def merge_progress(known: NodeProgress, news: ProgressNews) -> NodeProgress:
    """`known` itself when the news is stale. A first message begins a new run, from nothing: the worker was asked
    again; as does any of a worker's after what a frontend did, whose first message was lost."""
    if known.status.settled:
        return known
    restarted = is_after_worker(known.sequence) and not (news.sequence is not None and is_after_worker(news.sequence))
    begins = news.sequence == 1 or restarted
    sequence = (0 if restarted else known.sequence) + 1 if news.sequence is None else news.sequence
    if not begins and sequence <= known.sequence:
        return known
    return replace(
        known,
        sequence=sequence,
        phase=news.phase,
        file_name=news.file_name,
        percentage=min(100.0, max(0.0 if begins else known.percentage, news.percentage)),
        bytes_done=news.bytes_done,
        bytes_total=news.bytes_total,
        rate_bytes_per_s=news.rate_bytes_per_s,
        eta_s=news.eta_s,
    )


def overlay(stored: NodeProgress, live: NodeProgress | None) -> NodeProgress:
    """What is shown: the store knows how it ended, the live feed how far it is while it is under way."""
    if live is None or live.sequence <= stored.sequence or stored.status not in _UNDER_WAY:
        return stored
    return NodeProgress(  # not `replace`, which costs three times as much: there may be a thousand of these
        node_id=stored.node_id,
        node_name=stored.node_name,
        status=stored.status,
        error=stored.error,
        phase=live.phase,
        file_name=live.file_name,
        bytes_done=live.bytes_done,
        bytes_total=live.bytes_total,
        percentage=live.percentage,
        rate_bytes_per_s=live.rate_bytes_per_s,
        eta_s=live.eta_s,
        sequence=live.sequence,
        variant=stored.variant,
        digest=stored.digest,
        attempts=stored.attempts,
        next_attempt_at=stored.next_attempt_at,
    )
