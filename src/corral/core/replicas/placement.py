"""Placement: each node gets a score, or the reason that rules it out, and the node with the best score is chosen.

A node that does not report its free memory or disk is neither full nor free: it comes after all nodes that report
enough. Memory is GPU memory where a node has GPUs, else RAM.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from corral.core.causes import join_reasons
from corral.core.models.load_plan import Elastic
from corral.core.nodes.node import NodeStatus
from corral.core.replicas.load_backoff import LAST_RESORT_AFTER, MAX_FAILED_NODES, LoadBackoff, format_utc_time
from corral.core.sizes import format_bytes

GIB = 1 << 30
LEAST_HEADROOM_BYTES = GIB
HEADROOM_SHARE = 0.05
# Weights in memory plus what an engine adds: context, scratch buffers, its libraries.
ESTIMATE_FACTOR = 1.2
ESTIMATE_EXTRA_BYTES = 256 << 20
# What a replica with an elastic engine may get beyond the least, where there is memory to spare.
CONTEXT_LEAST_BYTES, CONTEXT_MOST_BYTES = 2 * GIB, 4 * GIB
# What a process writes to disk that needs no new files: its records, log and scratch space.
START_BYTES = 64 << 20


def estimate_bytes(weights_bytes: int) -> int:
    """The least memory of a replica, where none was measured."""
    return int(weights_bytes * ESTIMATE_FACTOR) + ESTIMATE_EXTRA_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one more replica of a model needs."""

    model: str
    selector: Mapping[str, str] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    """Concurrency groups: models that share one never run on the same node at the same time."""
    weights_bytes: int | None = None
    measured_bytes: Mapping[str, int] = field(default_factory=dict)
    """Peak memory of earlier loads, by device class."""
    measured_slots: Mapping[str, int] = field(default_factory=dict)
    """How many slots the engine of that load had, where it is known."""
    elastic: Elastic = Elastic.NOTHING
    staged_on: frozenset[str] = frozenset()
    """Nodes that have the weights on disk."""
    shared_directory: bool = False
    variant_problems: Mapping[str, str] = field(default_factory=dict)
    """By node: why no build of the backend can run there."""
    unresolved_on: frozenset[str] = frozenset()
    """Nodes whose `variant_problems` may pass: the source of the backend cannot be reached."""
    unreported_on: frozenset[str] = frozenset()
    """Nodes whose `variant_problems` may pass: they registered a moment ago, and may have the backend."""
    deleted: Mapping[str, str] = field(default_factory=dict)
    """By node: who deleted the backend there. A load must not reinstall it."""
    only_node: str | None = None
    """The only node that it may be placed on."""
    replaces: str | None = None
    """The replica that it replaces. It is never evicted, because it may have to be restarted."""
    surge_on: str | None = None
    """The node of the replica that it replaces: only there one replica more than the limit may run for a while."""
    instead_of: str | None = None
    """The replica that it replaces and whose memory it may use: that one is stopped first."""
    backoffs: Mapping[str, LoadBackoff] = field(default_factory=dict)
    """By node: failures of the same load. Such a node comes last, and not before its cool-down is over."""
    to_install_on: frozenset[str] = frozenset()
    """Nodes that would have to install the backend first."""
    unconfirmed_on: frozenset[str] = frozenset()
    """Nodes that lack the backend while its source is unreachable: they come after nodes that have it."""

    def failures_on(self, node_id: str) -> int:
        backoff = self.backoffs.get(node_id) if self.backoffs else None
        failures = backoff.failures if backoff is not None else 0
        return failures or int(node_id in self.unconfirmed_on)

    def memory_bytes(self, device: str) -> int | None:
        """The least that it needs. What further slots and context took elsewhere is not needed here."""
        measured = self.measured_bytes.get(device)
        if self.weights_bytes is None:
            return measured
        estimate = estimate_bytes(self.weights_bytes)
        if measured is None:
            return estimate
        match self.elastic:
            case Elastic.CONTEXT:
                return min(measured, estimate)
            case Elastic.SLOTS:
                return min(measured, estimate + (measured - estimate) // self.measured_slots.get(device, 1))
            case Elastic.NOTHING:
                return measured
            case unknown:
                assert_never(unknown)

    def reserved_bytes(self, node: "NodeCapacity", *, evicts: bool = False) -> int | None:
        """What is reserved: where the node has memory to spare, up to half of it for more slots and context."""
        least = self.memory_bytes(node.device)
        if least is None or evicts or self.elastic is Elastic.NOTHING:
            return least
        spare = max(0, (node.free_memory or 0) - least) // 2
        wanted = min(max(self.weights_bytes or 0, CONTEXT_LEAST_BYTES), CONTEXT_MOST_BYTES)
        return least + min(spare, wanted)

    def disk_bytes(self, node_id: str) -> int:
        """Size of the weights plus 5 %, at least 1 GiB more; for weights of unknown size only that 1 GiB."""
        if self.shared_directory or node_id in self.staged_on:
            return 0
        size = self.weights_bytes or 0
        return size + max(int(size * HEADROOM_SHARE), LEAST_HEADROOM_BYTES)

    def brings_files(self, node_id: str) -> bool:
        """Whether weights or the backend must be written to the node's disk."""
        return self.disk_bytes(node_id) > 0 or node_id in self.to_install_on


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReplica:
    """A replica that is on the node already."""

    id: str
    model: str
    slot: int
    in_flight: int = 0
    idle_ms: int = 0
    memory_bytes: int | None = None
    groups: frozenset[str] = frozenset()
    evictable: bool = False
    """Ready and idle, and its model keeps its minimum without it."""
    spare: int = 1
    """How many replicas of its model may be evicted together without falling below its minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """All that placement knows about one node. Reservations and the budget are deducted from the free amounts."""

    id: str
    name: str
    status: NodeStatus
    labels: Mapping[str, str]
    capability: str
    device: str
    """Class of hardware, for example `cpu` or `nvidia`. Footprints are compared only within one class."""
    slots_per_model: int
    free_memory: int | None
    free_disk: int | None
    total_memory: int | None = None
    """All that replicas may ever use, within the budget."""
    total_disk: int | None = None
    replicas: tuple[HeldReplica, ...] = ()
    in_flight: int = 0
    takes_backends: bool = True
    budget: str | None = None
    """The memory budget as the administrator wrote it."""
    conditions: tuple[str, ...] = ()
    """Why the node accepts no new work."""
    low_disk: str = ""
    """Why the node accepts nothing that must be written to its disk."""
    base_score: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    """The part of its score that is the same for every need."""

    def __post_init__(self) -> None:
        unknown = self.free_memory is None or self.free_disk is None
        busy = bool(self.replicas) or self.in_flight > 0
        object.__setattr__(self, "base_score", (2 if self.low_disk else int(unknown), int(busy), self.in_flight))


class PlacementVerdict(StrEnum):
    CHOSEN = "chosen"
    POSSIBLE = "possible"
    RULED_OUT = "ruled_out"


Score = tuple[int, int, int, int, int, int, int, int]
SCORE_NAMES = (
    "failed_here",
    "capacity_uncertain",
    "not_idle",
    "in_flight",
    "same_model",
    "replicas",
    "weights_missing",
    "free_mib_negated",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    node_id: str
    node_name: str
    verdict: PlacementVerdict
    reason: str = ""
    score: Score | None = None
    """Lower is better, compared from the left; named by `SCORE_NAMES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    node_id: str
    slot: int
    memory_bytes: int | None
    disk_bytes: int
    evict: tuple[str, ...] = ()
    """Replicas whose processes must have stopped before this one may start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    reason: str
    by_choice: bool = False
    """Its backend was deleted from all nodes that could run it. It waits until someone installs it again."""
    until_ms: int | None = None
    """It failed on nodes that could run it; this is when the first of them is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    need: Need
    outcome: Placed | Waiting
    nodes: Sequence[NodeCapacity]
    verdicts: Sequence["Score | str | None"]
    """For each node its score or the reason that rules it out; None where a better node was found first."""

    @property
    def model(self) -> str:
        return self.need.model

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Computed when read: most decisions are never shown, and there may be a thousand nodes."""
        judge = _Judge(self.need)
        pairs = zip(self.nodes, self.verdicts, strict=True)
        return tuple(self._candidate(node, judge(node) if found is None else found) for node, found in pairs)

    def _candidate(self, node: NodeCapacity, found: "Score | str") -> Candidate:
        taken = isinstance(self.outcome, Placed) and self.outcome.node_id == node.id
        if isinstance(found, str):
            verdict = PlacementVerdict.CHOSEN if taken else PlacementVerdict.RULED_OUT
            return Candidate(node_id=node.id, node_name=node.name, verdict=verdict, reason=found)
        verdict = PlacementVerdict.CHOSEN if taken else PlacementVerdict.POSSIBLE
        return Candidate(node_id=node.id, node_name=node.name, verdict=verdict, score=found)


def place(need: Need, nodes: Sequence[NodeCapacity]) -> Decision:
    judge = _Judge(need)
    verdicts: list[Score | str | None] = [None] * len(nodes)
    too_many_failures = _check_failures(need)
    if too_many_failures is not None:
        return Decision(need=need, outcome=too_many_failures, nodes=nodes, verdicts=verdicts)
    preferred, last_resort = _group_by_base_score(need, nodes)
    for turns in (preferred, last_resort):
        found = _fit(need, nodes, verdicts, judge, turns)
        if found is not None:
            return _decision(need, nodes, verdicts, *found)
    waiting = _deleted_everywhere(judge) or Waiting(
        reason=summarize(nodes, [str(verdict) for verdict in verdicts]),
        until_ms=min((one.until_ms for one in judge.cooling_down), default=None),
    )
    return Decision(need=need, outcome=waiting, nodes=nodes, verdicts=verdicts)


def place_instead(need: Need, nodes: Sequence[NodeCapacity], replaced: str) -> Decision | None:
    """For a node without memory for the old and the new replica: place the new one in the memory of the old one, which
    is stopped first. None where even that is not enough."""
    here = next((node for node in nodes if any(held.id == replaced for held in node.replicas)), None)
    if here is None or need.only_node not in (None, here.id):
        return None
    decision = place(replace(need, only_node=here.id, instead_of=replaced), nodes)
    return decision if isinstance(decision.outcome, Placed) else None


def _check_failures(need: Need) -> Waiting | None:
    """A model that fails everywhere is not tried on the whole fleet at once."""
    failed = [one for one in need.backoffs.values() if one.cooling_down]
    if need.only_node is not None or len(failed) < MAX_FAILED_NODES:
        return None
    until_ms = min(one.until_ms for one in failed)
    reason = f"loading failed on {len(failed)} nodes in a row; next attempt after {format_utc_time(until_ms)}"
    return Waiting(reason=reason, until_ms=until_ms)


def _group_by_base_score(need: Need, nodes: Sequence[NodeCapacity]) -> tuple[list[list[int]], list[list[int]]]:
    """Positions of nodes with equal failures and base score, the best group first: the preferred nodes, and those that
    failed repeatedly."""
    groups: dict[tuple[int, tuple[int, int, int]], list[int]] = {}
    for position, node in enumerate(nodes):
        groups.setdefault((need.failures_on(node.id), node.base_score), []).append(position)
    preferred = [groups[key] for key in sorted(groups) if key[0] < LAST_RESORT_AFTER]
    return preferred, [groups[key] for key in sorted(groups) if key[0] >= LAST_RESORT_AFTER]


def _fit(
    need: Need,
    nodes: Sequence[NodeCapacity],
    verdicts: list["Score | str | None"],
    judge: "_Judge",
    turns: Sequence[list[int]],
) -> tuple[int, tuple[str, ...]] | None:
    """The position of the best node, and what must be evicted there."""
    for positions in turns:
        for position in positions:
            verdicts[position] = judge(nodes[position])
        best = _best_of(positions, nodes, verdicts)
        if best is not None:
            return best, ()
    if any(one.failures < LAST_RESORT_AFTER for one in judge.cooling_down):
        return None  # one failure may be chance: that node is tried again before anything is evicted
    return _cheapest_eviction(
        need, nodes, verdicts, judge.short_of_memory, [at for positions in turns for at in positions]
    )


def _best_of(
    positions: list[int], nodes: Sequence[NodeCapacity], verdicts: Sequence["Score | str | None"]
) -> int | None:
    scores = [verdict for position in positions if isinstance(verdict := verdicts[position], tuple)]
    if not scores:
        return None
    best = min(scores)
    equals = [position for position in positions if verdicts[position] == best]
    return min(equals, key=lambda position: nodes[position].name)


def count_placements(need: Need, nodes: Sequence[NodeCapacity], most: int) -> tuple[int, str]:
    """How many replicas could be placed one after another, up to `most`, and why the next one could not."""
    left = {node.id: node for node in nodes}
    for count in range(most):
        outcome = place(need, list(left.values())).outcome
        if isinstance(outcome, Waiting):
            return count, outcome.reason
        left[outcome.node_id] = _with(left[outcome.node_id], need, outcome, f"{need.model} {count}")
    return max(0, most), ""


def _with(node: NodeCapacity, need: Need, placed: Placed, identity: str) -> NodeCapacity:
    stay = tuple(replica for replica in node.replicas if replica.id not in placed.evict)
    freed = sum(replica.memory_bytes or 0 for replica in node.replicas if replica.id in placed.evict)
    new = HeldReplica(
        id=identity, model=need.model, slot=placed.slot, memory_bytes=placed.memory_bytes, groups=need.groups
    )
    memory, disk = node.free_memory, node.free_disk
    return replace(
        node,
        replicas=(*stay, new),
        free_memory=memory + freed - (placed.memory_bytes or 0) if memory is not None else None,
        free_disk=disk - placed.disk_bytes if disk is not None else None,
    )


def _decision(
    need: Need,
    nodes: Sequence[NodeCapacity],
    verdicts: Sequence[Score | str | None],
    position: int,
    evict: tuple[str, ...],
) -> Decision:
    node = nodes[position]
    slot = free_slot(need, node)
    assert slot is not None
    placed = Placed(
        node_id=node.id,
        slot=slot,
        memory_bytes=need.reserved_bytes(node, evicts=bool(evict)),
        disk_bytes=need.disk_bytes(node.id),
        evict=evict,
    )
    return Decision(need=need, outcome=placed, nodes=nodes, verdicts=verdicts)


def free_slot(need: Need, node: NodeCapacity) -> int | None:
    """The lowest free slot. They are counted, since the limit may have been lowered below the slots in use."""
    taken = {replica.slot for replica in node.replicas if replica.model == need.model}
    limit = node.slots_per_model + int(node.id == need.surge_on)
    return next((slot for slot in range(limit) if slot not in taken), None) if len(taken) < limit else None


def _at_limit(limit: int) -> str:
    count = f"{limit} replica{'s' if limit != 1 else ''}"
    return f"already runs {count} of this model (limit {limit}; raise it with `corral nodes limit`)"


class _Judge:
    """Judges one need against one node after another. What depends on the need alone is computed once: a decision for a
    large fleet must take milliseconds."""

    def __init__(self, need: Need) -> None:
        self.short_of_memory: set[str] = set()
        """Ids of nodes that could take the need if replicas were evicted."""
        self.deleted: list[str] = []
        """Reasons of nodes that match the need, but had its backend deleted."""
        self.cooling_down: list[LoadBackoff] = []
        """Of nodes that could take the need, had it not just failed there."""
        self.eligible = 0
        """How many nodes may take the need, if they have the capacity."""
        self._need = need
        self._labels = tuple(need.selector.items())
        self._excludes = bool(need.variant_problems or need.only_node is not None)
        self._deleted = need.deleted
        self._backoffs = need.backoffs
        self._fresh_disk_bytes = need.disk_bytes("")
        self._memory_bytes: dict[str, int | None] = {}

    def __call__(self, node: NodeCapacity) -> Score | str:
        need = self._need
        if node.status is not NodeStatus.HEALTHY:
            return f"it is {node.status.value}"
        if node.conditions:
            return node.conditions[0]
        if not node.takes_backends:
            return "it is an agent node, which runs no backends"
        if self._excludes and (problem := self._excluded(node.id)):
            return problem
        for key, value in self._labels:
            if node.labels.get(key) != value:
                return f"its label {key} is {node.labels.get(key) or 'not set'}, not {value}"
        if self._deleted and (problem := self._deleted.get(node.id, "")):
            self.deleted.append(problem)
            return problem
        self.eligible += 1
        failed = int(node.id in need.unconfirmed_on)
        if self._backoffs and (backoff := self._backoffs.get(node.id)):
            if backoff.cooling_down:
                self.cooling_down.append(backoff)
                return backoff.reason
            failed = backoff.failures
        disk = node.free_disk
        if node.low_disk and (problem := self._low_disk(node)):
            return problem
        if disk is not None and disk < self._fresh_disk_bytes and (needed := need.disk_bytes(node.id)) > disk:
            return f"{format_bytes(needed)} of disk space needed, {format_bytes(max(disk, 0))} free"
        same, replicas = 0, node.replicas
        if replicas or not node.slots_per_model:
            same = sum(held.model == need.model for held in replicas)
            if same >= node.slots_per_model and free_slot(need, node) is None:
                return _at_limit(node.slots_per_model)
            if need.groups and (problem := self._conflict(node)):
                return problem
        free = _free_memory(need, node)
        if free is None:
            return (failed, *node.base_score, same, len(replicas), int(node.id not in need.staged_on), 0)
        memory = self._needed_bytes(node.device)
        if memory is not None and memory > free:
            self.short_of_memory.add(node.id)
            within = f" within its budget of {node.budget}" if node.budget else ""
            return f"{format_bytes(memory)} of memory needed, {format_bytes(max(free, 0))} free{within}"
        return (failed, *node.base_score, same, len(replicas), int(node.id not in need.staged_on), -(free >> 20))

    def _low_disk(self, node: NodeCapacity) -> str:
        """A start that writes no files is allowed: a new version must not wait for free disk space."""
        if self._need.brings_files(node.id):
            return node.low_disk
        if node.free_disk is not None and node.free_disk < START_BYTES:
            return f"{node.low_disk}; starting a process needs {format_bytes(START_BYTES)}"
        return ""

    def _excluded(self, node_id: str) -> str:
        need = self._need
        if need.only_node is not None and node_id != need.only_node:
            if need.replaces is not None:
                return "the replica that it replaces is on another node"
            return "the replica was requested for another node"
        return need.variant_problems.get(node_id, "")

    def _conflict(self, node: NodeCapacity) -> str:
        need = self._need
        other = next((held for held in node.replicas if _conflicts(need, held)), None)
        if other is None:
            return ""
        self.short_of_memory.add(node.id)
        shared = ", ".join(sorted(other.groups & need.groups))
        return f"{other.model} runs there and shares concurrency group {shared}"

    def _needed_bytes(self, device: str) -> int | None:
        try:
            return self._memory_bytes[device]
        except KeyError:
            needed = self._memory_bytes[device] = self._need.memory_bytes(device)
            return needed


def _free_memory(need: Need, node: NodeCapacity) -> int | None:
    """Includes the memory of the replica that is stopped first; if that is unknown, it counts as much as the need."""
    free, replaced = node.free_memory, need.instead_of
    if free is None or replaced is None:
        return free
    held = next((held for held in node.replicas if held.id == replaced), None)
    return free if held is None else free + (held.memory_bytes or need.memory_bytes(node.device) or 0)


def _conflicts(need: Need, held: HeldReplica) -> bool:
    return held.model != need.model and not need.groups.isdisjoint(held.groups)


def _cheapest_eviction(
    need: Need,
    nodes: Sequence[NodeCapacity],
    verdicts: list[Score | str | None],
    short_of_memory: Collection[str],
    positions: Iterable[int],
) -> tuple[int, tuple[str, ...]] | None:
    """The node where the fewest replicas must be evicted; among equals, where they have been idle longest."""
    best: tuple[int, int, str] | None = None
    chosen: tuple[int, tuple[str, ...]] | None = None
    for position in positions:
        node = nodes[position]
        if node.id not in short_of_memory:
            continue
        victims = _victims(need, node)
        if victims is None:
            if node.replicas:
                verdicts[position] = f"{verdicts[position]}; its replicas are busy or protected by min_replicas"
            continue
        rank = (len(victims), -min(victim.idle_ms for victim in victims), node.name)
        if best is None or rank < best:
            best, chosen = rank, (position, tuple(victim.id for victim in victims))
    return chosen


def _victims(need: Need, node: NodeCapacity) -> list[HeldReplica] | None:
    """Replicas of conflicting groups first, then the least recently used, until the need fits; None if it cannot."""
    conflicting = [held for held in node.replicas if _conflicts(need, held)]
    evicted = Counter(held.model for held in conflicting)
    if any(not held.evictable or evicted[held.model] > held.spare for held in conflicting):
        return None
    victims = list(conflicting)
    needed, free = need.memory_bytes(node.device), _free_memory(need, node)
    if free is None or needed is None:
        return victims
    missing = needed - free - sum(held.memory_bytes or 0 for held in conflicting)
    kept = (need.replaces, need.instead_of)
    others = (
        held
        for held in node.replicas
        if held.evictable and held.memory_bytes and held not in conflicting and held.id not in kept
    )
    for held in sorted(others, key=lambda held: -held.idle_ms):
        if missing <= 0:
            break
        if evicted[held.model] < held.spare:
            evicted[held.model] += 1
            victims.append(held)
            missing -= held.memory_bytes or 0
    return victims if missing <= 0 else None


def _deleted_everywhere(judge: _Judge) -> Waiting | None:
    if judge.eligible or not judge.deleted:
        return None
    commonest, _ = Counter(judge.deleted).most_common(1)[0]
    return Waiting(reason=commonest, by_choice=True)


def summarize(nodes: Sequence[NodeCapacity], reasons: Sequence[str]) -> str:
    """One sentence: the most common reasons, each with the nodes that it rules out."""
    names_of: dict[str, list[str]] = {}
    for node, reason in zip(nodes, reasons, strict=True):
        names_of.setdefault(reason, []).append(node.name)
    if not names_of:
        return "the cluster has no nodes; add one with `corral worker --join`"
    ranked = sorted(names_of.items(), key=lambda item: -len(item[1]))[:3]
    parts = [f"{names[0] if len(names) == 1 else f'{len(names)} nodes'}: {reason}" for reason, names in ranked]
    return "no node can take it; " + join_reasons(parts)
