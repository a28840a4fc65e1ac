"""Progress of a node: within one attempt the percentage never decreases, and late messages are ignored."""

from dataclasses import replace

from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus
from corral.core.transfer import TransferProgress

AFTER_WORKER = 1 << 52
"""Above every sequence number of a worker, and exact in every JSON reader."""
_RUNNING = frozenset((NodeProgressStatus.DOWNLOADING, NodeProgressStatus.RUNNING_ON_WORKER))


def after_worker(now_ms: int) -> int:
    """The sequence number of a frontend's own step after the worker's; it also grows if another frontend takes over."""
    return AFTER_WORKER + now_ms


def is_after_worker(sequence: int) -> bool:
    return sequence >= AFTER_WORKER


def merge_progress(known: NodeProgress, sequence: int | None, transfer: TransferProgress) -> NodeProgress:
    """Returns `known` itself when the message is stale. `sequence` counts from 1 for each run on the worker, is above
    `AFTER_WORKER` from a frontend, and None from a worker that does not count.

    The first message of a run starts from zero. So does any message of a worker after a frontend's own step: the run's
    first message was lost."""
    if known.status.settled:
        return known
    restarted = is_after_worker(known.sequence) and not (sequence is not None and is_after_worker(sequence))
    begins = sequence == 1 or restarted
    if sequence is None:
        sequence = (0 if restarted else known.sequence) + 1
    if not begins and sequence <= known.sequence:
        return known
    percentage = min(100.0, max(0.0 if begins else known.transfer.percentage, transfer.percentage))
    return replace(known, sequence=sequence, transfer=replace(transfer, percentage=percentage))


def settle_transfer(transfer: TransferProgress, status: NodeProgressStatus, verb: Verb) -> TransferProgress:
    """The progress to show once a node has reached this status: what has ended has no rate, and success is complete."""
    if status in _RUNNING:
        return transfer
    at_rest = replace(transfer, rate_bytes_per_s=None, eta_s=None)
    if status is not NodeProgressStatus.SUCCESS:
        return at_rest
    return replace(at_rest, percentage=100.0, phase="ready" if verb.ensures_presence else "")


def overlay(stored: NodeProgress, live: NodeProgress | None) -> NodeProgress:
    """The progress to show: the store knows how it ended, the live feed how far it is while it is running."""
    if live is None or live.sequence <= stored.sequence or stored.status not in _RUNNING:
        return stored
    return replace(stored, transfer=live.transfer, sequence=live.sequence)
