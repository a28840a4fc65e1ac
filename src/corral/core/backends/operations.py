"""An operation: one requested change, with its progress on every node. Its state follows from the nodes' states."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from corral.core.backends.intents import BackendSpec, IntentState, NextStep, Verb
from corral.core.backends.policies import PolicyChange
from corral.core.backends.rollouts import RolloutPlan
from corral.core.backends.version_pins import PinChange
from corral.core.causes import join_reasons
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Skipped, Target
from corral.core.transfer import TransferProgress


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
        """Whether nothing more happens automatically."""
        return self in (
            NodeProgressStatus.SUCCESS,
            NodeProgressStatus.NOT_APPLICABLE,
            NodeProgressStatus.CANCELLED,
        )


_RUNNING: Mapping[str, str] = {
    Verb.INSTALL: "being installed",
    Verb.UPGRADE: "being upgraded",
    Verb.ROLLBACK: "being rolled back",
    Verb.DELETE: "being deleted",
    Verb.PIN: "being pinned",
}


def describe_running(verb: str) -> str:
    """For people. As a status, everything in progress is `downloading`, as it is with LocalAI."""
    return _RUNNING.get(verb, "in progress")


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
    transfer: TransferProgress = field(default_factory=TransferProgress)
    sequence: int = 0
    """Of the message that `transfer` came with."""
    variant: str = ""
    digest: str = ""
    attempts: int = 0
    next_attempt_at: int | None = None
    method: str = ""
    """How replicas were replaced, as it was seen: `rolling` or `stop-first`; empty before that, or without replicas."""

    @property
    def has_failed(self) -> bool:
        """Whether its last attempt failed, also while the next one is running."""
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
    """The only node of the operation, if it has just one."""
    target: Target
    generation: int
    actor: str
    cause: str
    """`request` by a person, or `policy` by the policy reconciler."""
    state: OperationState
    cancel_requested: bool
    error: str
    created_at: int
    changed_at: int
    finished_at: int | None
    dismissed_at: int | None
    nodes: tuple[NodeProgress, ...] = ()

    @property
    def name(self) -> str:
        """The requested reference without its gallery: `name` or `name@version`."""
        parts = self.reference.split("@")
        return "@".join(parts[parts.index(self.backend) :]) if self.backend in parts else parts[-1]

    @property
    def percentage(self) -> float:
        """The average of the nodes that take part."""
        if self.state is OperationState.COMPLETED:
            return 100.0
        counted = [node for node in self.nodes if node.status is not NodeProgressStatus.NOT_APPLICABLE]
        return sum(node.transfer.percentage for node in counted) / len(counted) if counted else 0.0

    @property
    def is_retrying(self) -> bool:
        """Whether all remaining nodes have failed and are retried automatically."""
        if self.state is not OperationState.RUNNING or self.cancel_requested:
            return False
        left = [node for node in self.nodes if not node.status.settled]
        return bool(left) and all(node.has_failed for node in left)

    @property
    def next_attempt_at(self) -> int | None:
        """The earliest retry of a failed node."""
        return min((node.next_attempt_at for node in self.nodes if node.next_attempt_at is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIntent:
    """One node's part of an operation that is about to be created."""

    node_id: NodeId
    node_name: str
    backend: str
    spec: BackendSpec
    only_if_desired: bool = False
    """For a delete where nothing is installed: created only if an intent to install it came in the meantime."""
    expected_generation: int | None = None
    """For a correction: the newest generation it was planned on. It is not created if there is a newer one."""
    desired_generation: int | None = None
    """For a correction: the generation of the desired state. A newer one that excludes it, under another name, takes
    precedence."""
    note: str = ""
    """Shown to people with the intent."""
    verb: Verb | None = None
    """If it differs from the operation's: an upgrade installs where the first install has not finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Everything that creating an operation writes, decided beforehand."""

    id: str
    verb: Verb
    backend: str
    reference: str
    target: Target
    actor: str
    intents: tuple[NewIntent, ...]
    skipped: tuple[Skipped, ...] = ()
    node_id: str | None = None
    cause: str = "request"
    policy: PolicyChange | None = None
    pin: PinChange | None = None
    """None keeps the pins in force; a delete for all nodes or a selector ends those of its target."""
    rollout: RolloutPlan | None = None
    """In which order the nodes change, and what must hold in between. None changes all of them at once."""
    idempotency_key: str | None = None
    request_hash: str = ""


def status_after(step: NextStep) -> NodeProgressStatus:
    """The status that people see of a node after an attempt."""
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
    """The final state of an operation without live intents, and its error.

    `holds`: it set a policy, which also applies to nodes that join later."""
    nodes = list(nodes)
    by_status: Mapping[NodeProgressStatus, list[NodeProgress]] = {
        status: [node for node in nodes if node.status is status] for status in NodeProgressStatus
    }
    failed = by_status[NodeProgressStatus.ERROR]
    if failed:
        return OperationState.FAILED, join_reasons(f"{node.node_name}: {node.error}" for node in failed)
    cancelled = by_status[NodeProgressStatus.CANCELLED]
    if cancelled:
        tried = [node for node in cancelled if node.attempts]
        if cancel_requested and tried:
            return OperationState.CANCELLED, join_reasons(f"{node.node_name}: {node.error}" for node in tried)
        return OperationState.CANCELLED, "cancelled" if cancel_requested else cancelled[0].error
    misfits = by_status[NodeProgressStatus.NOT_APPLICABLE]
    if misfits and len(misfits) == len(nodes) and not (verb is Verb.DELETE and holds):
        return OperationState.FAILED, join_reasons(f"{node.node_name}: {node.error}" for node in misfits)
    return OperationState.COMPLETED, ""
