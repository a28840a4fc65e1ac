"""A rollout: an operation that changes the version of a backend in waves, judges each wave, and goes back if one fails.

running ──wave done, soaked, gates passed──> next wave ... ──> completed
   │  ▲                └── canaries done ──> awaiting_promotion ──promote──> running
   │  └─resume── paused
   └── a gate failed, or someone aborted it ──> rolling_back ──> failed, aborted
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from corral.core.backends.build import short_digest
from corral.core.backends.gates import GateOutcome, GateSettings, GateVerdict
from corral.core.backends.intents import BackendSpec, IntentState
from corral.core.backends.starts import StartProof
from corral.core.errors import InvalidInput
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.targets import Target

DEFAULT_SIZES = ("10%", "50%")
"""After the canaries, of all nodes and cumulative. The last wave always has the rest."""
ALL_AT_ONCE_UP_TO = 3
"""Nodes that change together if nobody chose a strategy: with so few, waves protect little."""
MAX_WAVES = 20
DAY_S = 86_400
MAX_SOAK_S = 7 * DAY_S
MAX_WAVE_TIMEOUT_S = 30 * DAY_S


class Strategy(StrEnum):
    ALL = "all"
    """Every node at once, without gates."""
    WAVES = "waves"
    """One canary for each class of nodes, then larger and larger waves, with gates after each."""
    CANARY = "canary"
    """As waves, but it stops after the canaries until someone promotes it."""


class PerNode(StrEnum):
    """How a replica is replaced on its node."""

    AUTO = "auto"
    """Rolling where memory allows, otherwise stop-first."""
    ROLLING = "rolling"
    """The new version starts beside the old one."""
    STOP_FIRST = "stop-first"
    """The old version stops before the new one starts."""


class RolloutState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    AWAITING_PROMOTION = "awaiting_promotion"
    ROLLING_BACK = "rolling_back"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def ended(self) -> bool:
        return self in (RolloutState.COMPLETED, RolloutState.FAILED, RolloutState.ABORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """What a command or a policy says about a rollout. None and empty leave it to the policy, then to the settings."""

    strategy: Strategy | None = None
    sizes: tuple[str, ...] = ()
    """Cumulative sizes of the waves: `3` nodes or `25%` of them."""
    soak_s: float | None = None
    per_node: PerNode | None = None
    unjudged_passes: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """What holds for one rollout."""

    strategy: Strategy | None = None
    """None: by the number of nodes."""
    sizes: tuple[str, ...] = ()
    soak_s: float = 60.0
    per_node: PerNode = PerNode.AUTO
    wave_timeout_s: float = 1800.0
    """A wave goes on without nodes that are not done after so long, if others have the version. If none has, another
    node stands in."""
    gates: GateSettings = field(default_factory=GateSettings)

    def check(self) -> None:
        """Raises InvalidInput that names what is out of range."""
        check_sizes(self.sizes)
        for name, most_s in (("soak", MAX_SOAK_S), ("wave timeout", MAX_WAVE_TIMEOUT_S)):
            value_s = self.soak_s if name == "soak" else self.wave_timeout_s
            if not 0 <= value_s <= most_s:
                raise InvalidInput(f"the {name} of rollouts must be between 0 s and {most_s // DAY_S} days")
        self.gates.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """The versions of one build before and after."""

    build: str
    version: str
    digest: str
    """Empty where it is known only after the install."""
    previous: BackendSpec
    """What to go back to: for the most nodes, if they differ."""
    is_digest_reported: bool = False
    """Whether only nodes told the digest: its source does not tell it before the install."""

    @property
    def is_known(self) -> bool:
        """Whether it can be recognised at all."""
        return bool(self.digest or self.version)

    @property
    def is_told_by_source(self) -> bool:
        """Whether its source tells in advance that it has this version."""
        return bool(self.version) or (bool(self.digest) and not self.is_digest_reported)

    @property
    def label(self) -> str:
        return self.version or short_digest(self.digest) or "the newest version"

    def is_to(self, build: str, *, digest: str, version: str) -> bool:
        """Whether this is the version that it brings."""
        if self.build != build:
            return False
        if self.digest and digest:
            return self.digest == digest
        return bool(version) and self.version == version


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutMember:
    """A node whose version a rollout changes."""

    node_id: NodeId
    node_name: str
    node_class: str
    """Figures are compared only within one class of nodes."""
    build: str
    previous_version: str
    previous_digest: str
    is_healthy: bool = True
    serves: bool = False
    """Whether replicas of the backend run there, so that the new version can be judged by requests."""
    method: str = ""
    """How its replicas are expected to be replaced; empty if there are none."""
    inherited: bool = False
    """Whether an earlier rollout, which this one replaced, had reached it: it goes back also if this one has not."""
    method_reason: str = ""
    """Why; known while the rollout is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """The rollout of an operation that is about to be created."""

    strategy: Strategy
    options: RolloutOptions
    waves: tuple[tuple[RolloutMember, ...], ...]
    builds: tuple[VersionChange, ...]

    @property
    def is_gated(self) -> bool:
        return self.strategy is not Strategy.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutNode:
    """A member and what has become of it."""

    member: RolloutMember
    wave: int
    intent: IntentState | None
    """None if its row is gone, for example after the node was removed. Of the intent that brings it the version now: a
    policy that installs the version again continues what the rollout began."""
    backend: str = ""
    """The name of its intents."""
    replaced_by: str = ""
    """The newer operation that someone requested for it; it has left the rollout then."""
    attempts: int = 0
    error: str = ""
    began: bool = False
    """Whether its worker may have been told."""
    version_failed: bool = False
    digest: str = ""
    """Of the version that it got."""
    proof: StartProof | None = None
    """Why that version was accepted."""
    rollback: IntentState | None = None
    """Of its way back; None if it was not sent back."""
    rollback_error: str = ""
    used_method: str = ""
    """How its replicas were replaced; empty before that was seen."""

    @property
    def is_done(self) -> bool:
        return self.intent is IntentState.SUCCEEDED

    @property
    def has_left(self) -> bool:
        """Whether a newer operation, a cancel or its removal has taken it out of the rollout."""
        return self.intent in (None, IntentState.SUPERSEDED, IntentState.CANCELLED)

    @property
    def was_reached(self) -> bool:
        """Whether its worker may have the new version, and nobody has decided otherwise since."""
        is_replaced = self.intent in (None, IntentState.SUPERSEDED)
        return (self.began or self.member.inherited) and not is_replaced

    @property
    def needs_rollback(self) -> bool:
        """Whether it goes back if the rollout fails."""
        return self.was_reached and bool(self.member.previous_digest)


def complete_builds(builds: Iterable[VersionChange], nodes: Sequence[RolloutNode]) -> tuple[VersionChange, ...]:
    """With the digests that nodes have reported, where the source told none. A node that still has its previous version
    tells nothing."""
    builds = tuple(builds)
    found: list[VersionChange] = []
    for change in builds:
        before = change.previous.build.name
        digests = {
            node.digest
            for node in nodes
            if node.member.build == before and node.digest not in ("", node.member.previous_digest)
        }
        is_clear = sum(other.previous.build.name == before for other in builds) == 1
        if change.digest or not digests or not is_clear:
            found.append(change)
        else:
            found += [replace(change, digest=digest, is_digest_reported=True) for digest in sorted(digests)]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRecord:
    """What is known about a wave that has begun."""

    wave: int
    began_at: int
    soak_began_at: int | None = None
    ended_at: int | None = None
    verdicts: tuple[GateVerdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    operation_id: str
    backend: str
    verb: str
    """Of its operation."""
    actor: str
    strategy: Strategy
    state: RolloutState
    outcome: RolloutState | None
    """While it is rolling back: how it will end."""
    wave: int
    """The current wave, from 0."""
    wave_count: int
    options: RolloutOptions
    builds: tuple[VersionChange, ...]
    target: Target
    """Nodes by id."""
    reason: str
    """Why it is paused, rolled back or ended."""
    waves: tuple[WaveRecord, ...]
    nodes: tuple[RolloutNode, ...]
    rollback_operation_id: str | None
    promoted: bool
    """Whether someone told it to go on with the next wave."""
    allowed_by: str
    """Who allowed the version again after it had failed."""
    created_at: int
    changed_at: int
    ended_at: int | None

    @property
    def is_gated(self) -> bool:
        return self.strategy is not Strategy.ALL

    @property
    def current(self) -> WaveRecord | None:
        return next((record for record in self.waves if record.wave == self.wave), None)

    @property
    def following(self) -> int | None:
        """The next wave that has nodes; None if the current one is the last."""
        return min((node.wave for node in self.nodes if node.wave > self.wave and not node.has_left), default=None)

    def nodes_of(self, wave: int) -> list[RolloutNode]:
        return [node for node in self.nodes if node.wave == wave]


def short_id(operation_id: str) -> str:
    """Enough of an id for commands to find the rollout by."""
    return operation_id[:8]


# Waves


def resolve_options(
    requested: RolloutRequest | None, policy: RolloutRequest | None, defaults: RolloutOptions
) -> RolloutOptions:
    """The command decides, then the policy, then the settings."""
    chosen = [one for one in (requested, policy) if one is not None]
    gates = defaults.gates
    for one in reversed(chosen):
        if one.unjudged_passes is not None:
            gates = replace(gates, unjudged_passes=one.unjudged_passes)
    return RolloutOptions(
        strategy=next((one.strategy for one in chosen if one.strategy is not None), defaults.strategy),
        sizes=next((one.sizes for one in chosen if one.sizes), defaults.sizes),
        soak_s=next((one.soak_s for one in chosen if one.soak_s is not None), defaults.soak_s),
        per_node=next((one.per_node for one in chosen if one.per_node is not None), defaults.per_node),
        wave_timeout_s=defaults.wave_timeout_s,
        gates=gates,
    )


def check_sizes(sizes: Sequence[str]) -> tuple[str, ...]:
    """Raises InvalidInput for sizes that cannot be read."""
    if len(sizes) > MAX_WAVES:
        raise InvalidInput(f"a rollout has at most {MAX_WAVES} waves")
    for size in sizes:
        number = size.removesuffix("%")
        if (
            not number.isascii()
            or not number.isdigit()
            or int(number) < 1
            or (size.endswith("%") and int(number) > 100)
        ):
            raise InvalidInput(f"{size!r} is not the size of a wave; write a number of nodes or a share, as 3 or 25%")
    return tuple(sizes)


def choose_strategy(options: RolloutOptions, count: int) -> Strategy:
    if options.strategy is not None:
        return options.strategy
    return Strategy.WAVES if count > ALL_AT_ONCE_UP_TO or options.sizes else Strategy.ALL


def plan_waves(
    members: Sequence[RolloutMember], strategy: Strategy, sizes: Sequence[str] = ()
) -> tuple[tuple[RolloutMember, ...], ...]:
    """Members by wave. Without sizes, the first wave has one healthy node of each class that has such nodes; one that
    serves, if there is one. Nodes that are not healthy come last, as nobody waits for them."""
    if strategy is Strategy.ALL or len(members) <= 1:
        return (tuple(members),) if members else ()
    ordered = _spread(members)
    counts = [_count(size, len(ordered)) for size in sizes or DEFAULT_SIZES]
    if not sizes:
        here = [one for one in ordered if one.is_healthy] or ordered
        counts.insert(0, len({one.node_class for one in here}))
    waves: list[tuple[RolloutMember, ...]] = []
    taken = 0
    for count in [*counts, len(ordered)]:
        if count > taken:
            waves.append(tuple(ordered[taken:count]))
            taken = count
    return tuple(waves)


def _count(size: str, total: int) -> int:
    if size.endswith("%"):
        return max(1, min(total, math.ceil(total * int(size[:-1]) / 100)))
    return min(total, int(size))


def _spread(members: Sequence[RolloutMember]) -> list[RolloutMember]:
    """One of each class in turn, so that every wave has as many classes as possible."""
    by_class: dict[str, list[RolloutMember]] = {}
    for one in sorted(members, key=lambda one: (not one.is_healthy, not one.serves, one.node_name)):
        by_class.setdefault(one.node_class, []).append(one)
    turns = [
        (not one.is_healthy, position, node_class, one)
        for node_class, group in by_class.items()
        for position, one in enumerate(group)
    ]
    return [one for _, _, _, one in sorted(turns, key=lambda turn: turn[:3])]


# Steps


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class BeginSoak:
    """The nodes of the wave that can be reached are done; from now on they are watched."""

    left_behind: tuple[str, ...] = ()
    """Names of nodes that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Release:
    """Let the nodes of this wave begin."""

    wave: int


@dataclass(frozen=True, slots=True)
class AwaitPromotion:
    pass


@dataclass(frozen=True, slots=True)
class RollBack:
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    pass


@dataclass(frozen=True, slots=True)
class StandIn:
    """Let this node of a later wave begin with the current one, in which no node gets the version."""

    node_id: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """Newer operations have taken all its nodes."""


Step = Wait | BeginSoak | Release | AwaitPromotion | RollBack | Complete | StandIn | Replaced
Statuses = Mapping[NodeId, NodeStatus]


def plan_step(
    rollout: Rollout, *, statuses: Statuses, verdicts: Sequence[GateVerdict], now_ms: int, judging: str = ""
) -> Step:
    """What a gated rollout does next. `verdicts`: of the current wave, as judged a moment ago. `judging`: why a gate is
    not judged yet; the wave does not pass before."""
    begun = [node for node in rollout.nodes if node.wave <= rollout.wave]
    failure = _find_failure(begun, verdicts)
    if failure is not None:
        return RollBack(failure)
    if all(node.has_left for node in rollout.nodes):
        return Replaced()
    if rollout.state is RolloutState.PAUSED:
        return Wait(rollout.reason or "paused")
    if rollout.state is RolloutState.AWAITING_PROMOTION and not rollout.promoted:
        return Wait("waiting for someone to promote it")
    record = rollout.current
    if record is None or (rollout.promoted and rollout.following is not None):
        return _go_on(rollout)
    if record.soak_began_at is None or not any(node.is_done for node in rollout.nodes):
        return _settle(rollout, record, statuses, now_ms)
    if rollout.promoted:
        return _go_on(rollout)
    left_s = record.soak_began_at / 1000 + rollout.options.soak_s - now_ms / 1000
    if left_s > 0:
        return Wait(f"watching wave {rollout.wave + 1} for another {math.ceil(left_s)} s")
    if judging:
        return Wait(judging)
    unjudged = [verdict for verdict in verdicts if verdict.outcome is GateOutcome.UNJUDGED]
    if unjudged and not rollout.options.gates.unjudged_passes:
        return RollBack(f"a gate could not be judged, which counts as failed by setting: {_describe(unjudged[0])}")
    if rollout.strategy is Strategy.CANARY and rollout.wave == 0 and rollout.following is not None:
        return AwaitPromotion()
    return _go_on(rollout)


def _find_failure(begun: Iterable[RolloutNode], verdicts: Iterable[GateVerdict]) -> str | None:
    for node in begun:
        if node.version_failed and not node.has_left:
            return f"{node.member.node_name}: {node.error}"
    failed = [verdict for verdict in verdicts if verdict.outcome is GateOutcome.FAILED]
    return "; ".join(map(_describe, failed)) or None


def _describe(verdict: GateVerdict) -> str:
    where = " on ".join(text for text in (verdict.model, verdict.node_class) if text)
    return f"{where}: {verdict.detail}" if where else verdict.detail


def _settle(rollout: Rollout, record: WaveRecord, statuses: Statuses, now_ms: int) -> Step:
    """Whether the wave is done. Once a node of the rollout has the version, it waits a limited time for nodes that
    fail for reasons of their own, and not for nodes that are offline or draining. Until then there is nothing to judge:
    it waits for all of them, and after that time another node stands in."""
    left = [node for node in rollout.nodes_of(rollout.wave) if not node.has_left and not node.is_done]
    is_overdue = waits_too_long(rollout, now_ms)
    if not any(node.is_done for node in rollout.nodes):
        return _await_first(rollout, left, statuses, is_overdue=is_overdue)
    trying = [node for node in left if statuses.get(node.member.node_id) is NodeStatus.HEALTHY]
    if trying and not is_overdue:
        return Wait(_why(trying, statuses))
    return BeginSoak(tuple(node.member.node_name for node in left))


def _await_first(rollout: Rollout, left: Sequence[RolloutNode], statuses: Statuses, *, is_overdue: bool) -> Step:
    why = _why(left, statuses) if left else f"newer operations took all nodes of wave {rollout.wave + 1}"
    if not is_overdue:
        return Wait(why)
    wave = rollout.nodes_of(rollout.wave)
    classes = {node.member.node_class for node in left or wave}
    able = [
        node
        for node in rollout.nodes
        if node.wave > rollout.wave
        and not node.has_left
        and node.member.node_class in classes
        and statuses.get(node.member.node_id) is NodeStatus.HEALTHY
    ]
    if not able:
        return Wait(f"{why}; no other healthy node of its class can stand in")
    best = min(able, key=lambda node: (not node.member.serves, node.wave, node.member.node_name))
    return StandIn(best.member.node_id, why)


def waits_too_long(rollout: Rollout, now_ms: int) -> bool:
    """Whether the current wave has been installing for longer than the rollout waits for nodes that fail."""
    record = rollout.current
    if rollout.state is not RolloutState.RUNNING or record is None:
        return False
    return (now_ms - record.began_at) / 1000 >= rollout.options.wave_timeout_s


def _why(nodes: Sequence[RolloutNode], statuses: Statuses) -> str:
    """What these nodes are waited for."""
    away: dict[str, list[RolloutNode]] = {}
    here = []
    for node in nodes:
        status = statuses.get(node.member.node_id)
        if status is NodeStatus.HEALTHY:
            here.append(node)
        else:
            away.setdefault(status.value if status is not None else "removed", []).append(node)
    texts = [f"{_names(group)} {'is' if len(group) == 1 else 'are'} {word}" for word, group in sorted(away.items())]
    if here:
        texts.append(f"{_names(here)}: {next((node.error for node in here if node.error), 'in progress')}")
    return "; ".join(texts)


def _names(nodes: Sequence[RolloutNode]) -> str:
    return list_names([node.member.node_name for node in nodes])


def list_names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _go_on(rollout: Rollout) -> Step:
    return Release(rollout.following) if rollout.following is not None else Complete()


def describe_replaced(nodes: Iterable[RolloutNode]) -> str:
    """Why a rollout has no nodes any more."""
    newer = sorted({node.replaced_by for node in nodes if node.replaced_by})
    if not newer:
        return "all its nodes have left it"
    return f"replaced by {'operation' if len(newer) == 1 else 'operations'} {', '.join(newer)}"


# Versions that are not offered


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A version that a rollout is still trying, or that failed: other nodes get the previous one."""

    operation_id: str
    backend: str
    change: VersionChange
    target: Target
    released: frozenset[NodeId]
    """Nodes that a running rollout has reached."""
    failed: bool
    reason: str
    since: int
    """When it failed; while the rollout runs, when that began."""
    is_aborted: bool = False
    """Whether it is being taken back because someone aborted the rollout."""

    def applies_to(self, node: Node) -> bool:
        if node.id in self.released:
            return False
        return node.id in self.target.nodes if self.target.nodes else matches(node, self.target.selector)

    def describe(self) -> str:
        if self.failed:
            at = datetime.fromtimestamp(self.since / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
            return (
                f"{self.change.label} is held back since {at}: it failed in rollout {short_id(self.operation_id)}"
                f" ({self.reason}); `corral rollouts allow {short_id(self.operation_id)}` offers it again"
            )
        if self.is_aborted:
            return f"rollout {short_id(self.operation_id)} was aborted and is taking {self.change.label} back"
        return f"rollout {short_id(self.operation_id)} has not reached this node with {self.change.label} yet"


def find_held_back(node: Node, specs: Mapping[str, BackendSpec], held: Iterable[HeldBack]) -> HeldBack | None:
    """Why one of these versions is not for this node now. `specs`: by build."""
    return next(
        (
            one
            for one in held
            if (spec := specs.get(one.change.build)) is not None
            and one.change.is_to(one.change.build, digest=spec.build.digest, version=spec.build.version)
            and one.applies_to(node)
        ),
        None,
    )


def describe_failed_version(rollout: Rollout) -> str:
    """For people: what is not offered after a rollout failed; empty where nothing is held back."""
    if not rollout.is_gated or rollout.state is not RolloutState.FAILED or rollout.allowed_by:
        return ""
    allow = f"until `corral rollouts allow {short_id(rollout.operation_id)}`"
    if all(change.is_told_by_source for change in rollout.builds):
        return f"This version is not offered again {allow}."
    again = "so an upgrade, or a node that joins, may get it again"
    silent = [change for change in rollout.builds if not change.is_told_by_source]
    if not any(change.is_known for change in silent):
        return (
            f"The source of {_builds_of(silent)} tells neither digest nor version, and no node has reported what it"
            f" got: it cannot be held back, {again}."
        )
    labels = ", ".join(sorted({change.label for change in silent if change.is_known}))
    return (
        f"{labels} is refused where it is named {allow}. The source of {_builds_of(silent)} tells neither digest nor"
        f" version in advance, {again} from there."
    )


def _builds_of(changes: Iterable[VersionChange]) -> str:
    return ", ".join(sorted({change.build for change in changes}))


def find_held_back_versions(rollouts: Iterable[Rollout]) -> list[HeldBack]:
    """Of rollouts that run, and of those that failed and were not allowed since."""
    found = []
    for rollout in rollouts:
        failed = rollout.state is RolloutState.FAILED or rollout.outcome is RolloutState.FAILED
        if not rollout.is_gated or (rollout.state.ended and not failed) or rollout.allowed_by:
            continue
        reached = frozenset(node.member.node_id for node in rollout.nodes if node.wave <= rollout.wave)
        found += [
            HeldBack(
                operation_id=rollout.operation_id,
                backend=rollout.backend,
                change=change,
                target=rollout.target,
                released=frozenset() if failed or rollout.outcome is not None else reached,
                failed=failed,
                reason=rollout.reason,
                since=(rollout.ended_at or rollout.changed_at) if failed else rollout.created_at,
                is_aborted=rollout.outcome is RolloutState.ABORTED,
            )
            for change in rollout.builds
        ]
    return found
