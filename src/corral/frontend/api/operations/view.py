"""An operation as the API shows it: LocalAI's fields (camel case for the operation, snake case for its nodes) with
Corral's beside them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache

from corral.core.backends.intents import Verb
from corral.core.backends.operations import (
    NodeProgress,
    NodeProgressStatus,
    Operation,
    OperationState,
    describe_running,
)
from corral.core.backends.progress import overlay
from corral.core.causes import join_reasons
from corral.core.nodes.node import NodeId
from corral.core.sizes import format_bytes
from corral.core.transfer import TransferProgress
from corral.frontend.api.times import time_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationNodeView:
    """One node of an operation. Fields that are named as in `TransferProgress` are taken from there."""

    node_id: str
    node_name: str
    status: NodeProgressStatus
    percentage: float
    file_name: str
    current: str
    total: str
    phase: str
    error: str
    bytes_done: int | None
    bytes_total: int | None
    rate_bytes_per_s: float | None
    eta_s: float | None
    attempts: int
    next_attempt_at: datetime | None
    variant: str
    """The build that was chosen for this node."""
    digest: str
    method: str
    """How its replicas were replaced, as it was seen: `rolling` or `stop-first`; empty before that or without any."""


_TRANSFER_FIELDS = {one.name for one in fields(TransferProgress)} & {one.name for one in fields(OperationNodeView)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    id: str
    fullName: str
    name: str
    jobID: str
    progress: int
    taskType: str
    isDeletion: bool
    isBackend: bool
    isQueued: bool
    cancellable: bool
    message: str
    nodeID: str | None
    phase: str
    currentBytes: int | None
    totalBytes: int | None
    error: str
    nodes: list[OperationNodeView]
    verb: Verb
    state: OperationState
    actor: str
    cause: str
    created_at: datetime
    changed_at: datetime
    """The later of two answers about one operation is the valid one."""
    finished_at: datetime | None
    dismissed_at: datetime | None
    retrying: bool
    """Whether all remaining nodes have failed (see `error`) and are retried automatically."""
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationList:
    operations: list[OperationView]


def with_live(operation: Operation, live: Mapping[NodeId, NodeProgress]) -> Operation:
    if not live or operation.finished_at is not None:
        return operation
    return replace(operation, nodes=tuple(overlay(node, live.get(node.node_id)) for node in operation.nodes))


def view_operation(operation: Operation) -> OperationView:
    nodes = operation.nodes
    busy = [node for node in nodes if node.status is NodeProgressStatus.DOWNLOADING]
    queued = bool(nodes) and all(node.status is NodeProgressStatus.QUEUED for node in nodes if _takes_part(node))
    waiting = operation.state is OperationState.RUNNING and queued
    return OperationView(
        id=operation.reference,
        fullName=operation.reference,
        name=operation.name,
        jobID=operation.id,
        progress=round(operation.percentage),
        taskType="Waiting" if waiting else _task_of(operation.verb),
        isDeletion=operation.verb is Verb.DELETE,
        isBackend=True,
        isQueued=waiting,
        cancellable=operation.finished_at is None and not operation.cancel_requested,
        message=describe(operation),
        nodeID=operation.node_id,
        phase=busy[0].transfer.phase if busy else "queued" if waiting else "",
        currentBytes=_sum(node.transfer.bytes_done for node in nodes),
        totalBytes=_sum(node.transfer.bytes_total for node in nodes),
        error=current_error(operation),
        nodes=[_view_node(node) for node in nodes],
        verb=operation.verb,
        state=operation.state,
        actor=operation.actor,
        cause=operation.cause,
        created_at=time_of(operation.created_at),
        changed_at=time_of(operation.changed_at),
        finished_at=time_of(operation.finished_at),
        dismissed_at=time_of(operation.dismissed_at),
        retrying=operation.is_retrying,
        next_attempt_at=time_of(operation.next_attempt_at),
    )


def current_error(operation: Operation) -> str:
    """The error of an operation, also of one that is retried: the cause is visible before all attempts are used."""
    if operation.finished_at is not None:
        return operation.error if operation.state is OperationState.FAILED else ""
    failing = [node for node in operation.nodes if node.has_failed]
    return join_reasons(f"{node.node_name}: {node.error}" for node in failing)


def describe(operation: Operation) -> str:
    if operation.finished_at is not None:
        return operation.state.value if not operation.error else operation.error
    if operation.cancel_requested:
        return "being cancelled"
    counts = Counter(node.status for node in operation.nodes)
    parts = [
        f"{counts[status]} {_describe_status(status, operation.verb)}"
        for status in NodeProgressStatus
        if counts[status] and status is not NodeProgressStatus.NOT_APPLICABLE
    ]
    return ", ".join(parts) or "waiting"


def _task_of(verb: Verb) -> str:
    """In LocalAI's words."""
    return "deletion" if verb is Verb.DELETE else "Installation"


def _describe_status(status: NodeProgressStatus, verb: Verb) -> str:
    return describe_running(verb) if status is NodeProgressStatus.DOWNLOADING else status.value.replace("_", " ")


def _takes_part(node: NodeProgress) -> bool:
    return node.status is not NodeProgressStatus.NOT_APPLICABLE


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


@lru_cache(maxsize=8192)  # of a thousand nodes few have changed since the last read
def _view_node(node: NodeProgress) -> OperationNodeView:
    transfer = replace(node.transfer, percentage=round(node.transfer.percentage, 1))
    return OperationNodeView(
        **{name: getattr(transfer, name) for name in _TRANSFER_FIELDS},
        node_id=node.node_id,
        node_name=node.node_name,
        status=node.status,
        current=format_bytes(transfer.bytes_done) if transfer.bytes_done is not None else "",
        total=format_bytes(transfer.bytes_total) if transfer.bytes_total is not None else "",
        error=node.error,
        attempts=node.attempts,
        next_attempt_at=time_of(node.next_attempt_at),
        variant=node.variant,
        digest=node.digest,
        method=node.method,
    )
