"""An intent: what must be true of one backend on one node, and what becomes of it after each attempt.

pending ──claim──> running ──┬─ observed ───────────────> succeeded
   ▲                         ├─ unreachable ────────────> pending        attempts kept
   │                         ├─ no answer in time ──────> unconfirmed  attempts kept
   └──── back-off ───────────┼─ definite failure ───────> pending, or after the last attempt dead_lettered
                             └─ cancelled by a person ──> cancelled
a newer order for the same backend on the same node: superseded, from wherever it is
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend, find_backend


class Verb(StrEnum):
    INSTALL = "install"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    DELETE = "delete"

    @property
    def ensures_presence(self) -> bool:
        return self is not Verb.DELETE

    @property
    def changes_version(self) -> bool:
        """Of what may be serving."""
        return self in (Verb.UPGRADE, Verb.ROLLBACK)


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
        return self in (IntentState.PENDING, IntentState.RUNNING, IntentState.UNCONFIRMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """All that a request to a worker needs: a retry from this value alone equals the first attempt."""

    reference: str
    """What was asked for, as it was asked: `name` or `gallery@name`."""
    name: str = ""
    """The build chosen for the node, and its directory there."""
    uri: str = ""
    """A source outside the galleries."""
    alias: str = ""
    galleries: str = ""
    """JSON text, for workers that look names up themselves."""
    uris: tuple[str, ...] = ()
    """The resolved source and its mirrors, tags replaced by digests."""
    digest: str = ""
    """Of the version that must be there; empty where nobody can know before the bytes have arrived."""
    version: str = ""
    sha256: str = ""
    manifest: str = ""
    """JSON text: how to start it."""
    force: bool = False
    reason: str = ""
    """Why this build."""
    left: tuple[str, ...] = ()
    """Versions that an administrator went back from: digests, and marks of those that have none."""

    @property
    def mark(self) -> str:
        """Names the version: its digest or, where nobody knows one before the bytes have arrived, what is to be fetched
        from where."""
        return self.digest or version_mark(self.version, self.uris[0] if self.uris else self.uri)

    @property
    def is_exact(self) -> bool:
        """A person named this very version: no other will do."""
        return bool(self.left) or "@sha256:" in self.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    id: str
    node_id: NodeId
    backend: str
    verb: Verb
    generation: int
    operation_id: str
    wave: int
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
    free_disk_at_end: int | None = None
    """Of its node, when it had failed for the last time."""
    conditions_at_end: frozenset[str] = frozenset()
    """Kinds of conditions its node had then."""
    final: bool = False
    """It has failed, and what it was for is not tried again unless a person says so."""


# What came of an attempt


@dataclass(frozen=True, slots=True)
class AttemptConfirmed:
    """The node's report shows what was wanted."""

    digest: str = ""


@dataclass(frozen=True, slots=True)
class AttemptUnconfirmed:
    """Nobody can say yet; most likely the worker is at it."""

    reason: str
    again_after_s: float


@dataclass(frozen=True, slots=True)
class AttemptUndelivered:
    """Definitely nothing was done, and through no fault of the order."""

    reason: str
    again_after_s: float
    nobody_there: bool = False
    """The bus itself says that the node does not listen."""


@dataclass(frozen=True, slots=True)
class AttemptRejected:
    """The worker tried, or declined, and said why."""

    reason: str
    outdated: bool = False
    """It has seen a newer order than this one, which is the newest we know: ours needs a higher number."""
    final: bool = False
    """Another attempt would stop again what serves, for a version that does not start: that is a person's decision."""


@dataclass(frozen=True, slots=True)
class AttemptCancelled:
    """A person cancelled it, and the worker has nothing of it running any more."""

    reason: str
    untold: bool = False
    """Except that the worker could not be told: it is away, and is told when it is back."""


AttemptOutcome = AttemptConfirmed | AttemptUnconfirmed | AttemptUndelivered | AttemptRejected | AttemptCancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    attempts: int = 10
    base_s: float = 30.0
    cap_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What the row becomes."""

    state: IntentState
    attempts: int
    due_in_s: float = 0.0
    error: str = ""
    digest: str = ""
    failed: bool = False
    """This attempt did, for good; what only did not get through has not."""
    higher_generation: bool = False
    node_unhealthy: bool = False
    stop_requested: bool = False
    """The order has ended, but its worker has yet to be told to stop what it may have begun."""
    final: bool = False


def retry_delay_s(attempt: int, *, draw: float, limits: RetryLimits) -> float:
    """Half of it jitter (`draw` in 0..1): nodes that failed together do not come back together, and none at once."""
    longest = min(limits.cap_s, limits.base_s * 2.0 ** min(attempt - 1, 20))
    return longest * (0.5 + 0.5 * draw)


def plan_next(intent: Intent, outcome: AttemptOutcome, *, draw: float, limits: RetryLimits) -> NextStep:
    step = NextStep(state=IntentState.PENDING, attempts=intent.attempts)
    match outcome:
        case AttemptConfirmed(digest=digest):
            return replace(step, state=IntentState.SUCCEEDED, digest=digest)
        case AttemptCancelled(reason=reason, untold=untold):
            error = with_last_error(reason, intent)
            return replace(step, state=IntentState.CANCELLED, error=error, stop_requested=untold)
        case AttemptUnconfirmed(reason=reason, again_after_s=wait_s):
            return replace(step, state=IntentState.UNCONFIRMED, due_in_s=wait_s, error=reason)
        case AttemptUndelivered(reason=reason, again_after_s=wait_s, nobody_there=nobody_there):
            return replace(step, due_in_s=wait_s, error=reason, node_unhealthy=nobody_there)
        case AttemptRejected(reason=reason, outdated=outdated, final=final):
            step = replace(step, attempts=intent.attempts + 1, error=reason, failed=True)
            if final or step.attempts >= limits.attempts:
                return replace(step, state=IntentState.DEAD_LETTERED, final=final)
            delay_s = retry_delay_s(step.attempts, draw=draw, limits=limits)
            return replace(step, due_in_s=delay_s, higher_generation=outdated)
        case _:
            assert_never(outcome)


def with_last_error(reason: str, intent: Intent) -> str:
    """Of an order that is called off: what kept it from being done is not forgotten."""
    if not intent.attempts or not intent.last_error:
        return reason
    times = "once" if intent.attempts == 1 else f"{intent.attempts} times"
    return f"{reason}; it had failed {times}: {intent.last_error}"


def find_missing(intent: Intent, backends: Iterable[ObservedBackend], *, answered: bool) -> str | None:
    """What the node's own table lacks of what was wanted; None when it shows all of it.

    `answered`: the worker has just said that this very order is done. Without its word an order is only taken as done
    where nothing else can have made it look so: that a backend is there proves an install, not an upgrade."""
    found = find_backend(backends, intent.spec.name, intent.backend)
    if intent.verb is Verb.DELETE:
        if found is None:
            return None if answered else "nobody has said that the delete was carried out"
        return f"{found.name} is still on the node"
    if found is None or (found.problem and not found.digest):
        return f"{intent.spec.name or intent.backend} is not on the node" + (f": {found.problem}" if found else "")
    wanted = intent.spec.digest
    if wanted and found.digest and found.digest != wanted:
        return f"the node has {short_digest(found.digest)} of {found.name}, not {short_digest(wanted)}"
    if answered or found.generation == intent.generation:
        return None
    if intent.verb is Verb.INSTALL and not intent.spec.force:
        return None
    if wanted and found.digest == wanted and not intent.spec.force:
        return None
    return f"{found.name} is on the node, but nothing shows that the {intent.verb} was carried out"


def version_mark(version: str, uri: str) -> str:
    return f"{version} at {uri}" if uri else ""


def short_digest(digest: str) -> str:
    return digest[:19] if digest.startswith("sha256:") else digest
