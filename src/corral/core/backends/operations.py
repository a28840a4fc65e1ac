"""An operation: what a person asked for, and how far each node is. Many nodes' states make one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.core.backends.intents import BackendSpec, IntentState, NextStep, Verb
from corral.core.backends.policies import PolicyChange
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Skipped, Target


class NodeProgressStatus(StrEnum):
    QUEUED = "queued"
    DOWNLOADING = "downloading"
    RUNNING_ON_WORKER = "running_on_worker"
    SUCCESS = "success"
    ERROR = "error"
    NOT_APPLICABLE = "not_applicable"
    CANCELLED = "cancelled"

    @property
    def settled(self) -> bool:
        """Nothing more happens by itself."""
        return self in (
            NodeProgressStatus.SUCCESS,
            NodeProgressStatus.NOT_APPLICABLE,
            NodeProgressStatus.CANCELLED,
        )


_UNDER_WAY: Mapping[str, str] = {
    Verb.INSTALL: "being installed",
    Verb.UPGRADE: "being upgraded",
    Verb.ROLLBACK: "being rolled back",
    Verb.DELETE: "being deleted",
}


def describe_running(verb: str) -> str:
    """For people; as a status, everything that is under way is `downloading`, as it is with LocalAI."""
    return _UNDER_WAY.get(verb, "under way")


class OperationState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgress:
    node_id: NodeId
    node_name: str
    status: NodeProgressStatus
    error: str = ""
    phase: str = ""
    file_name: str = ""
    bytes_done: int | None = None
    bytes_total: int | None = None
    percentage: float = 0.0
    rate_bytes_per_s: float | None = None
    eta_s: float | None = None
    sequence: int = 0
    variant: str = ""
    digest: str = ""
    attempts: int = 0
    next_attempt_at: int | None = None

    @property
    def has_failed(self) -> bool:
        """At its last attempt, also while the next one is being made."""
        if self.status is NodeProgressStatus.ERROR:
            return True
        return self.status is NodeProgressStatus.DOWNLOADING and self.attempts > 0 and bool(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    verb: Verb
    backend: str
    reference: str
    node_id: str | None
    """Of an operation on one node only."""
    target: Target
    generation: int
    actor: str
    cause: str
    """Who wanted it: `request`, or the controller, by a `policy`."""
    state: OperationState
    cancel_requested: bool
    error: str
    created_at: int
    changed_at: int
    finished_at: int | None
    dismissed_at: int | None
    nodes: tuple[NodeProgress, ...] = ()

    @property
    def percentage(self) -> float:
        """Of the nodes that take part."""
        if self.state is OperationState.COMPLETED:
            return 100.0
        counted = [node for node in self.nodes if node.status is not NodeProgressStatus.NOT_APPLICABLE]
        return sum(node.percentage for node in counted) / len(counted) if counted else 0.0

    @property
    def is_retrying(self) -> bool:
        """All that is left of it has failed, and is tried again by itself."""
        if self.state is not OperationState.RUNNING or self.cancel_requested:
            return False
        left = [node for node in self.nodes if not node.status.settled]
        return bool(left) and all(node.has_failed for node in left)

    @property
    def next_attempt_at(self) -> int | None:
        """The first one of those that failed."""
        return min((node.next_attempt_at for node in self.nodes if node.next_attempt_at is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIntent:
    """One node's part of an operation that is about to be admitted."""

    node_id: NodeId
    node_name: str
    backend: str
    spec: BackendSpec
    wave: int = 0
    only_if_desired: bool = False
    """Of a delete where nothing is known to be: given only if an order to have it came in the meantime."""
    expected_generation: int | None = None
    """Of an order nobody asked for: the newest wish it was planned on. Another one since then, and it is not given."""
    desired_generation: int | None = None
    """And of the wish itself: one that excludes it, under another name, and is newer goes before it."""
    note: str = ""
    """What people should know of it."""
    verb: Verb | None = None
    """Where it is another one than the operation's: an upgrade installs where the backend was still to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Everything that admitting an operation writes, decided before."""

    id: str
    verb: Verb
    backend: str
    reference: str
    target: Target
    actor: str
    orders: tuple[NewIntent, ...]
    skipped: tuple[Skipped, ...] = ()
    node_id: str | None = None
    cause: str = "request"
    policy: PolicyChange | None = None
    holds: tuple[BackendSpec, ...] = ()
    """Of a rollback for more than named nodes: what machines get that come later, for each build."""
    idempotency_key: str | None = None
    request_hash: str = ""
    plan: str = ""


def status_after(step: NextStep) -> NodeProgressStatus:
    """What people see of a node after an attempt."""
    match step.state:
        case IntentState.SUCCEEDED:
            return NodeProgressStatus.SUCCESS
        case IntentState.CANCELLED | IntentState.SUPERSEDED:
            return NodeProgressStatus.CANCELLED
        case IntentState.DEAD_LETTERED:
            return NodeProgressStatus.ERROR
        case IntentState.UNCONFIRMED:
            return NodeProgressStatus.RUNNING_ON_WORKER
        case IntentState.RUNNING:
            return NodeProgressStatus.DOWNLOADING
        case IntentState.PENDING:
            return NodeProgressStatus.ERROR if step.failed else NodeProgressStatus.QUEUED


def conclude(
    nodes: Iterable[NodeProgress], *, verb: Verb, cancel_requested: bool, holds: bool
) -> tuple[OperationState, str]:
    """The end of an operation none of whose orders is open any more, and why it ended so.

    `holds`: it set a policy, which will be carried out on machines that come later."""
    nodes = list(nodes)
    by_status: Mapping[NodeProgressStatus, list[NodeProgress]] = {
        status: [node for node in nodes if node.status is status] for status in NodeProgressStatus
    }
    failed = by_status[NodeProgressStatus.ERROR]
    if failed:
        return OperationState.FAILED, "; ".join(f"{node.node_name}: {node.error}" for node in failed)
    cancelled = by_status[NodeProgressStatus.CANCELLED]
    if cancelled:
        tried = [node for node in cancelled if node.attempts]
        if cancel_requested and tried:
            return OperationState.CANCELLED, "; ".join(f"{node.node_name}: {node.error}" for node in tried)
        return OperationState.CANCELLED, "cancelled" if cancel_requested else cancelled[0].error
    misfits = by_status[NodeProgressStatus.NOT_APPLICABLE]
    if misfits and len(misfits) == len(nodes) and not (verb is Verb.DELETE and holds):
        return OperationState.FAILED, "; ".join(f"{node.node_name}: {node.error}" for node in misfits)
    return OperationState.COMPLETED, ""
