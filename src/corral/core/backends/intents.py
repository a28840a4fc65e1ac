"""An intent: what must be true of one backend on one node, and its next state after each attempt.

pending ──claim──> running ──┬─ confirmed by a report ──> succeeded
   ▲                         ├─ undelivered ────────────> pending       attempts kept
   │                         ├─ no answer in time ──────> unconfirmed   attempts kept
   └──── back-off ───────────┼─ rejected ───────────────> pending, or dead_lettered after the last attempt
                             └─ cancelled by a person ──> cancelled
A newer intent for the same backend on the same node supersedes it, whatever its state.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from corral.core.backends.build import BuildRef, short_digest
from corral.core.backends.starts import StartProof
from corral.core.backoff import Backoff
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend, find_backend, find_moved


class Verb(StrEnum):
    INSTALL = "install"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    DELETE = "delete"
    PIN = "pin"
    """Only of an operation: its intents upgrade or install."""
    FOLLOW = "follow"
    """Only of an operation, which has no intents."""

    @property
    def ensures_presence(self) -> bool:
        """Whether the backend must be installed afterwards."""
        return self is not Verb.DELETE

    @property
    def is_undone_by_cancel(self) -> bool:
        """Whether a cancel also takes it back on nodes where it is already done."""
        return self is Verb.DELETE or self.changes_version

    @property
    def changes_version(self) -> bool:
        """Whether it replaces the version of a backend that may be serving."""
        return self in (Verb.UPGRADE, Verb.ROLLBACK, Verb.PIN)


class IntentState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    UNCONFIRMED = "unconfirmed"
    SUCCEEDED = "succeeded"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"

    @property
    def live(self) -> bool:
        """Whether it has yet to end."""
        return self in (IntentState.PENDING, IntentState.RUNNING, IntentState.UNCONFIRMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """All that a command to a worker needs: a retry from this value alone equals the first attempt."""

    reference: str
    """What was requested, as it was written: `name` or `gallery@name`."""
    build: BuildRef = field(default_factory=BuildRef)
    """The build for the node. Empty where the name has yet to be looked up."""
    uri: str = ""
    """A source outside the galleries."""
    galleries: str = ""
    """JSON text, for workers that look names up themselves."""
    force: bool = False
    reason: str = ""
    """Why this build."""
    pinned: bool = False
    """Whether a pin prescribes this version."""

    @property
    def is_exact(self) -> bool:
        """Whether a person named this very version, so that no other will do."""
        return self.pinned or "@sha256:" in self.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    id: str
    node_id: NodeId
    backend: str
    verb: Verb
    generation: int
    operation_id: str
    spec: BackendSpec
    state: IntentState
    newest: bool
    attempts: int
    due_at: int
    last_error: str
    cancel_requested: bool
    claim_token: str | None
    fence: int
    finished_at: int | None
    epoch_at_end: int | None = None
    """Of the node's worker at the last failure."""
    free_disk_at_end: int | None = None
    """Free bytes on the node's disk at the last failure."""
    conditions_at_end: frozenset[str] = frozenset()
    """Kinds of conditions that the node had at the last failure."""
    final: bool = False
    """It failed, and only a person may retry it."""
    held: bool = False
    """It waits for its wave of a rollout."""


DONE_BEFORE_CANCEL = "it was done before the cancel; what was desired before is desired again"

# Outcomes of an attempt


@dataclass(frozen=True, slots=True)
class AttemptConfirmed:
    """The node's report shows the desired state."""

    digest: str = ""
    proof: StartProof | None = None
    """Of a version that replaced another."""


@dataclass(frozen=True, slots=True)
class AttemptUnconfirmed:
    """The outcome is unknown; most likely the worker is still working on it."""

    reason: str
    again_after_s: float


@dataclass(frozen=True, slots=True)
class AttemptUndelivered:
    """Definitely nothing was done, for a reason that is not the intent's."""

    reason: str
    again_after_s: float
    no_responder: bool = False
    """The bus reports that nobody listens on the node's subject."""


@dataclass(frozen=True, slots=True)
class AttemptRejected:
    """The worker failed or refused, and gave the reason."""

    reason: str
    outdated: bool = False
    """The worker has accepted a higher generation than this one, which is the newest we know: ours must be raised."""
    final: bool = False
    """A retry would again stop a serving version for one that does not start: only a person may decide that."""
    version_failed: bool = False
    """The version itself does not start on the node."""
    digest: str = ""
    """Of that version, as the node reported it."""


@dataclass(frozen=True, slots=True)
class AttemptCancelled:
    """A person cancelled it, and the worker no longer runs any of it."""

    reason: str
    worker_unreached: bool = False
    """The node is offline; its worker is told to stop when it is back."""


AttemptOutcome = AttemptConfirmed | AttemptUnconfirmed | AttemptUndelivered | AttemptRejected | AttemptCancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    attempts: int = 10
    base_s: float = 30.0
    cap_s: float = 900.0

    @property
    def backoff(self) -> Backoff:
        return Backoff(base_s=self.base_s, cap_s=self.cap_s, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The intent's row after an attempt."""

    state: IntentState
    attempts: int
    due_in_s: float = 0.0
    error: str = ""
    digest: str = ""
    failed: bool = False
    """Whether the attempt failed definitely, and not only for want of a connection."""
    higher_generation: bool = False
    node_unhealthy: bool = False
    stop_requested: bool = False
    """The intent has ended, but its worker has yet to be told to stop what it may have begun."""
    final: bool = False
    version_failed: bool = False
    proof: StartProof | None = None


def plan_next(intent: Intent, outcome: AttemptOutcome, *, draw: float, limits: RetryLimits) -> NextStep:
    step = NextStep(state=IntentState.PENDING, attempts=intent.attempts)
    match outcome:
        case AttemptConfirmed(digest=digest, proof=proof):
            return replace(step, state=IntentState.SUCCEEDED, digest=digest, proof=proof)
        case AttemptCancelled(reason=reason, worker_unreached=worker_unreached):
            error = with_last_error(reason, intent)
            return replace(step, state=IntentState.CANCELLED, error=error, stop_requested=worker_unreached)
        case AttemptUnconfirmed(reason=reason, again_after_s=wait_s):
            return replace(step, state=IntentState.UNCONFIRMED, due_in_s=wait_s, error=reason)
        case AttemptUndelivered(reason=reason, again_after_s=wait_s, no_responder=no_responder):
            return replace(step, due_in_s=wait_s, error=reason, node_unhealthy=no_responder)
        case AttemptRejected(reason=reason, outdated=outdated, final=final, version_failed=version_failed):
            step = replace(step, attempts=intent.attempts + 1, error=reason, failed=True, version_failed=version_failed)
            step = replace(step, digest=outcome.digest)
            if final or step.attempts >= limits.attempts:
                return replace(step, state=IntentState.DEAD_LETTERED, final=final)
            delay_s = limits.backoff.delay_s(step.attempts, draw)
            return replace(step, due_in_s=delay_s, higher_generation=outdated)
        case _:
            assert_never(outcome)


def with_last_error(reason: str, intent: Intent) -> str:
    """The reason for a cancellation, with the last failure of the cancelled intent."""
    if not intent.attempts or not intent.last_error:
        return reason
    times = "once" if intent.attempts == 1 else f"{intent.attempts} times"
    return f"{reason}; it had failed {times}: {intent.last_error}"


def find_missing(
    intent: Intent,
    backends: Iterable[ObservedBackend],
    *,
    answered: bool,
    looks_up_itself: bool = False,
    digest_before: str = "",
) -> str | None:
    """What the node's report lacks of the desired state; None when nothing is missing.

    `answered`: the worker has just confirmed this very intent. Without its answer an intent counts as done only if
    nothing else can explain the report: an installed backend proves an install, not an upgrade.
    `looks_up_itself`: the worker installs what the name means at that moment, as LocalAI's do. A tag may have moved
    since the intent was made; the worker then has the newer version. With the one that it had before (`digest_before`)
    nothing was upgraded."""
    backends = tuple(backends)
    found = find_backend(backends, intent.spec.build.name, intent.backend)
    if intent.verb is Verb.DELETE:
        if found is None:
            return None if answered else "the worker has not confirmed the delete"
        return f"{found.name} is still installed"
    if found is None or (found.problem and not found.digest):
        return f"{intent.spec.build.name or intent.backend} is not installed" + (f": {found.problem}" if found else "")
    digest = intent.spec.build.digest
    if digest and looks_up_itself and found.digest and found.digest == digest_before != digest:
        return (
            f"{found.name} is still at {short_digest(found.digest)}, although {short_digest(digest)} is offered; check"
            " whether the node's registry or its mirror has the new version"
        )
    if digest and found.digest and found.digest != digest and not (answered and looks_up_itself):
        return f"{found.name} is at {short_digest(found.digest)} instead of {short_digest(digest)}"
    build = intent.spec.build.name
    if build and not intent.spec.uri and not looks_up_itself:
        other = find_moved(backends, intent.backend, build)
        if other is not None:
            return f"{intent.backend} is {other} there instead of {build}"
    if answered or found.generation == intent.generation:
        return None
    if intent.verb is Verb.INSTALL and not intent.spec.force:
        return None
    if digest and found.digest == digest and not intent.spec.force:
        return None
    return f"{found.name} is installed, but the node's report does not confirm the {intent.verb}"
