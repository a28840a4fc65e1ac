"""Progress of a node: within one attempt the percentage never decreases, and late messages are ignored."""

from dataclasses import dataclass, replace

from corral.core.backends.operations import NodeProgress, NodeProgressStatus

AFTER_WORKER = 1 << 52
"""Above every sequence number of a worker, and exact in every JSON reader."""
_RUNNING = frozenset((NodeProgressStatus.DOWNLOADING, NodeProgressStatus.RUNNING_ON_WORKER))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressNews:
    sequence: int | None
    """Counts from 1 for each run on the worker; None from a worker that does not count. Frontends use numbers above
    `AFTER_WORKER`."""
    phase: str
    file_name: str
    percentage: float
    bytes_done: int | None
    bytes_total: int | None
    rate_bytes_per_s: float | None
    eta_s: float | None


def after_worker(now_ms: int) -> int:
    """The sequence number of a frontend's own step after the worker's; it also grows if another frontend takes over."""
    return AFTER_WORKER + now_ms


def is_after_worker(sequence: int) -> bool:
    return sequence >= AFTER_WORKER


def merge_progress(known: NodeProgress, news: ProgressNews) -> NodeProgress:
    """Returns `known` itself when the news is stale. The first message of a run starts from zero. So does any message
    of a worker after a frontend's own step: the run's first message was lost."""
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
    """The progress to show: the store knows how it ended, the live feed how far it is while it is running."""
    if live is None or live.sequence <= stored.sequence or stored.status not in _RUNNING:
        return stored
    return NodeProgress(  # not `replace`, which takes three times as long: there may be a thousand of these
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
