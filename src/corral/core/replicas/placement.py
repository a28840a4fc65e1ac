"""Where a replica goes: every node gets a verdict with a reason, and the best of those that may is chosen.

Unknown is neither full nor free: a node that does not tell is taken after all that tell they have room. Memory means
the GPUs' where a node has some, else the machine's.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from corral.core.nodes.node import NodeStatus
from corral.core.replicas.load_backoff import IN_A_ROW, STUBBORN_AFTER, LoadBackoff, clock_words
from corral.core.sizes import format_bytes

GIB = 1 << 30
LEAST_HEADROOM_BYTES = GIB
HEADROOM_SHARE = 0.05
# Weights in memory plus what an engine puts beside them: context, scratch, its own libraries.
ESTIMATE_FACTOR = 1.2
ESTIMATE_EXTRA_BYTES = 256 << 20
# What a process writes that brings nothing along: records of it, its log, its scratch space.
START_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one more replica of a model takes."""

    model: str
    selector: Mapping[str, str] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    """Models that share a group do not run on one node at the same time."""
    weights_bytes: int | None = None
    measured_bytes: Mapping[str, int] = field(default_factory=dict)
    """Peak memory of earlier loads, by device class."""
    staged_on: frozenset[str] = frozenset()
    """Nodes that have the weights: nothing is written to their disks."""
    shared_directory: bool = False
    variant_problems: Mapping[str, str] = field(default_factory=dict)
    """By node: why no build of the backend fits there."""
    deleted: Mapping[str, str] = field(default_factory=dict)
    """By node: who deleted its backend there. A load must not bring it back."""
    only_node: str | None = None
    """One per node is wanted, and this is the node."""
    replaces: str | None = None
    """The replica it takes over from. It is never evicted for that: it may have to be started again."""
    surge_on: str | None = None
    """It takes over from another one, which runs on this node: only there one more than the limit may run for the
    while."""
    instead_of: str | None = None
    """The replica it takes over from, whose memory it may have: that one is stopped first."""
    setbacks: Mapping[str, LoadBackoff] = field(default_factory=dict)
    """By node: how the same load failed there. It comes after all others, and not before its rest is over."""
    to_install_on: frozenset[str] = frozenset()
    """Nodes that would have to get the backend first."""
    unconfirmed_on: frozenset[str] = frozenset()
    """Nodes that lack the backend while its source cannot be asked: they come after those that have it."""

    def failures_on(self, node_id: str) -> int:
        setback = self.setbacks.get(node_id) if self.setbacks else None
        failures = setback.failures if setback is not None else 0
        return failures or int(node_id in self.unconfirmed_on)

    def memory_bytes(self, device: str) -> int | None:
        measured = self.measured_bytes.get(device)
        if measured is not None:
            return measured
        if self.weights_bytes is None:
            return None
        return int(self.weights_bytes * ESTIMATE_FACTOR) + ESTIMATE_EXTRA_BYTES

    def disk_bytes(self, node_id: str) -> int:
        """Model size plus 5 %, at least 1 GiB more; of weights of unknown size only that much is asked for."""
        if self.shared_directory or node_id in self.staged_on:
            return 0
        size = self.weights_bytes or 0
        return size + max(int(size * HEADROOM_SHARE), LEAST_HEADROOM_BYTES)

    def brings_files(self, node_id: str) -> bool:
        """To the node's disk: weights, or the backend."""
        return self.disk_bytes(node_id) > 0 or node_id in self.to_install_on


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReplica:
    """A replica that has its place already."""

    id: str
    model: str
    slot: int
    in_flight: int = 0
    idle_ms: int = 0
    memory_bytes: int | None = None
    groups: frozenset[str] = frozenset()
    evictable: bool = False
    """Ready, serving nobody, and its model keeps its minimum without it."""
    spare: int = 1
    """So many of its model may go together without falling below its minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """All that placement knows about one node. Free figures have reservations and budgets taken off."""

    id: str
    name: str
    status: NodeStatus
    labels: Mapping[str, str]
    capability: str
    device: str
    """Class of hardware that footprints are compared within, for example `cpu` or `nvidia`."""
    slots_per_model: int
    free_memory: int | None
    free_disk: int | None
    replicas: tuple[HeldReplica, ...] = ()
    in_flight: int = 0
    takes_backends: bool = True
    budget: str | None = None
    """What of its memory models may use, as it was written, for people."""
    conditions: tuple[str, ...] = ()
    """Why it takes no new work."""
    low_disk: str = ""
    """Why it takes nothing that has to be written to its disk."""
    standing: tuple[int, int, int] = field(init=False, repr=False, compare=False)
    """The beginning of its score, which is the same for every need."""

    def __post_init__(self) -> None:
        unknown = self.free_memory is None or self.free_disk is None
        busy = bool(self.replicas) or self.in_flight > 0
        object.__setattr__(self, "standing", (2 if self.low_disk else int(unknown), int(busy), self.in_flight))


class PlacementVerdict(StrEnum):
    CHOSEN = "chosen"
    POSSIBLE = "possible"
    RULED_OUT = "ruled_out"


Score = tuple[int, int, int, int, int, int, int, int]
SCORE_NAMES = (
    "failed_here",
    "room_doubtful",
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
    """Replicas to be stopped, their processes gone, before this one may start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    reason: str
    by_choice: bool = False
    """Wherever it could run its backend was deleted: no patience helps, only somebody who installs it again."""
    until_ms: int | None = None
    """It failed on machines that could have it, and this is when the first of them is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    need: Need
    outcome: Placed | Waiting
    rooms: Sequence[NodeRoom]
    verdicts: Sequence["Score | str | None"]
    """For each room its score, or what stood in the way; None where nobody looked, because better ones could do it."""

    @property
    def model(self) -> str:
        return self.need.model

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Made when somebody looks: most decisions are never explained, and there may be a thousand nodes."""
        judge = _Judge(self.need)
        pairs = zip(self.rooms, self.verdicts, strict=True)
        return tuple(self._candidate(room, judge(room) if found is None else found) for room, found in pairs)

    def _candidate(self, room: NodeRoom, found: "Score | str") -> Candidate:
        taken = isinstance(self.outcome, Placed) and self.outcome.node_id == room.id
        if isinstance(found, str):
            verdict = PlacementVerdict.CHOSEN if taken else PlacementVerdict.RULED_OUT
            return Candidate(node_id=room.id, node_name=room.name, verdict=verdict, reason=found)
        verdict = PlacementVerdict.CHOSEN if taken else PlacementVerdict.POSSIBLE
        return Candidate(node_id=room.id, node_name=room.name, verdict=verdict, score=found)


def place(need: Need, rooms: Sequence[NodeRoom]) -> Decision:
    judge = _Judge(need)
    verdicts: list[Score | str | None] = [None] * len(rooms)
    unlucky = _unlucky_in_a_row(need)
    if unlucky is not None:
        return Decision(need=need, outcome=unlucky, rooms=rooms, verdicts=verdicts)
    willing, stubborn = _by_standing(need, rooms)
    for turns in (willing, stubborn):
        found = _fit(need, rooms, verdicts, judge, turns)
        if found is not None:
            return _decision(need, rooms, verdicts, *found)
    waiting = _deleted_everywhere(judge) or Waiting(
        reason=_summary(rooms, [str(verdict) for verdict in verdicts]),
        until_ms=min((one.until_ms for one in judge.resting), default=None),
    )
    return Decision(need=need, outcome=waiting, rooms=rooms, verdicts=verdicts)


def place_instead(need: Need, rooms: Sequence[NodeRoom], replaced: str) -> Decision | None:
    """Where memory does not hold the old and the new replica at once: on the old one's node, in the memory that is
    free once it has been stopped. None where that does not make room either."""
    here = next((room for room in rooms if any(held.id == replaced for held in room.replicas)), None)
    if here is None or need.only_node not in (None, here.id):
        return None
    decision = place(replace(need, only_node=here.id, instead_of=replaced), rooms)
    return decision if isinstance(decision.outcome, Placed) else None


def _unlucky_in_a_row(need: Need) -> Waiting | None:
    """A model that loads nowhere is not carried through a whole herd at once."""
    resting = [one for one in need.setbacks.values() if one.rests]
    if need.only_node is not None or len(resting) < IN_A_ROW:
        return None
    until_ms = min(one.until_ms for one in resting)
    reason = f"it failed on {len(resting)} machines in a row; the next is tried from {clock_words(until_ms)} on"
    return Waiting(reason=reason, until_ms=until_ms)


def _by_standing(need: Need, rooms: Sequence[NodeRoom]) -> tuple[list[list[int]], list[list[int]]]:
    """Positions of rooms that begin alike in their scores, the best first; by themselves those that failed it again and
    again."""
    groups: dict[tuple[int, tuple[int, int, int]], list[int]] = {}
    for position, room in enumerate(rooms):
        groups.setdefault((need.failures_on(room.id), room.standing), []).append(position)
    willing = [groups[key] for key in sorted(groups) if key[0] < STUBBORN_AFTER]
    return willing, [groups[key] for key in sorted(groups) if key[0] >= STUBBORN_AFTER]


def _fit(
    need: Need,
    rooms: Sequence[NodeRoom],
    verdicts: list["Score | str | None"],
    judge: "_Judge",
    turns: Sequence[list[int]],
) -> tuple[int, tuple[str, ...]] | None:
    """Which of them takes it, and what makes room there."""
    for positions in turns:
        for position in positions:
            verdicts[position] = judge(rooms[position])
        best = _best_of(positions, rooms, verdicts)
        if best is not None:
            return best, ()
    if any(one.failures < STUBBORN_AFTER for one in judge.resting):
        return None  # one failure may be chance: it is tried there again before others have to go for it
    return _cheapest_eviction(need, rooms, verdicts, judge.crowded, [at for positions in turns for at in positions])


def _best_of(positions: list[int], rooms: Sequence[NodeRoom], verdicts: Sequence["Score | str | None"]) -> int | None:
    scores = [verdict for position in positions if isinstance(verdict := verdicts[position], tuple)]
    if not scores:
        return None
    best = min(scores)
    equals = [position for position in positions if verdicts[position] == best]
    return min(equals, key=lambda position: rooms[position].name)


def count_room(need: Need, rooms: Sequence[NodeRoom], most: int) -> tuple[int, str]:
    """How many more of a kind could be placed one after the other, up to `most`, and what keeps the next one out."""
    left = {room.id: room for room in rooms}
    for count in range(most):
        outcome = place(need, list(left.values())).outcome
        if isinstance(outcome, Waiting):
            return count, outcome.reason
        left[outcome.node_id] = _with(left[outcome.node_id], need, outcome, f"{need.model} {count}")
    return max(0, most), ""


def _with(room: NodeRoom, need: Need, placed: Placed, identity: str) -> NodeRoom:
    stay = tuple(replica for replica in room.replicas if replica.id not in placed.evict)
    freed = sum(replica.memory_bytes or 0 for replica in room.replicas if replica.id in placed.evict)
    new = HeldReplica(
        id=identity, model=need.model, slot=placed.slot, memory_bytes=placed.memory_bytes, groups=need.groups
    )
    memory, disk = room.free_memory, room.free_disk
    return replace(
        room,
        replicas=(*stay, new),
        free_memory=memory + freed - (placed.memory_bytes or 0) if memory is not None else None,
        free_disk=disk - placed.disk_bytes if disk is not None else None,
    )


def _decision(
    need: Need, rooms: Sequence[NodeRoom], verdicts: Sequence[Score | str | None], position: int, evict: tuple[str, ...]
) -> Decision:
    room = rooms[position]
    slot = free_slot(need, room)
    assert slot is not None
    placed = Placed(
        node_id=room.id,
        slot=slot,
        memory_bytes=need.memory_bytes(room.device),
        disk_bytes=need.disk_bytes(room.id),
        evict=evict,
    )
    return Decision(need=need, outcome=placed, rooms=rooms, verdicts=verdicts)


def free_slot(need: Need, room: NodeRoom) -> int | None:
    """The lowest free one. Counted, since a limit may have been lowered below the slots that are taken."""
    taken = {replica.slot for replica in room.replicas if replica.model == need.model}
    limit = room.slots_per_model + int(room.id == need.surge_on)
    return next((slot for slot in range(limit) if slot not in taken), None) if len(taken) < limit else None


class _Judge:
    """One need against one room after another. What depends on the need alone is worked out once: a large herd's
    decision has to take milliseconds."""

    def __init__(self, need: Need) -> None:
        self.crowded: set[str] = set()
        """Rooms that only what runs there keeps from taking the need."""
        self.deleted: list[str] = []
        """Why rooms that could have the need may not have its backend."""
        self.resting: list[LoadBackoff] = []
        """Of rooms that could have the need, had it not just failed there."""
        self.eligible = 0
        """Rooms that may, if they are not too full."""
        self._need = need
        self._labels = tuple(need.selector.items())
        self._excludes = bool(need.variant_problems or need.only_node is not None)
        self._deleted = need.deleted
        self._setbacks = need.setbacks
        self._fresh_disk_bytes = need.disk_bytes("")
        self._memory_bytes: dict[str, int | None] = {}

    def __call__(self, room: NodeRoom) -> Score | str:
        need = self._need
        if room.status is not NodeStatus.HEALTHY:
            return f"it is {room.status.value}"
        if room.conditions:
            return room.conditions[0]
        if not room.takes_backends:
            return "it is an agent, which runs no backends"
        if self._excludes and (problem := self._excluded(room.id)):
            return problem
        for key, value in self._labels:
            if room.labels.get(key) != value:
                return f"label {key} is {room.labels.get(key) or 'not set'}, not {value}"
        if self._deleted and (problem := self._deleted.get(room.id, "")):
            self.deleted.append(problem)
            return problem
        self.eligible += 1
        failed = int(room.id in need.unconfirmed_on)
        if self._setbacks and (setback := self._setbacks.get(room.id)):
            if setback.rests:
                self.resting.append(setback)
                return setback.reason
            failed = setback.failures
        disk = room.free_disk
        if room.low_disk and (problem := self._low_disk(room)):
            return problem
        if disk is not None and disk < self._fresh_disk_bytes and (wanted := need.disk_bytes(room.id)) > disk:
            return f"its disk has {format_bytes(max(disk, 0))} free and {format_bytes(wanted)} are needed"
        same, replicas = 0, room.replicas
        if replicas or not room.slots_per_model:
            same = sum(held.model == need.model for held in replicas)
            if same >= room.slots_per_model and free_slot(need, room) is None:
                return f"it runs {room.slots_per_model} of this model already, as many as it may"
            if need.groups and (problem := self._rival(room)):
                return problem
        free = _free_memory(need, room)
        if free is None:
            return (failed, *room.standing, same, len(replicas), int(room.id not in need.staged_on), 0)
        memory = self._wanted_bytes(room.device)
        if memory is not None and memory > free:
            self.crowded.add(room.id)
            within = f" within its budget of {room.budget}" if room.budget else ""
            return f"{format_bytes(max(free, 0))} of memory are free{within} and {format_bytes(memory)} are needed"
        return (failed, *room.standing, same, len(replicas), int(room.id not in need.staged_on), -(free >> 20))

    def _low_disk(self, room: NodeRoom) -> str:
        """What is there already may be started: a new version must not wait for ever for a disk to be cleared."""
        if self._need.brings_files(room.id):
            return room.low_disk
        if room.free_disk is not None and room.free_disk < START_BYTES:
            return f"{room.low_disk}; a process takes {format_bytes(START_BYTES)} of it to start"
        return ""

    def _excluded(self, node_id: str) -> str:
        need = self._need
        if need.only_node is not None and node_id != need.only_node:
            return "the replica is meant for another node"
        return need.variant_problems.get(node_id, "")

    def _rival(self, room: NodeRoom) -> str:
        need = self._need
        rival = next((held for held in room.replicas if _rivals(need, held)), None)
        if rival is None:
            return ""
        self.crowded.add(room.id)
        shared = ", ".join(sorted(rival.groups & need.groups))
        return f"{rival.model} runs there and shares concurrency group {shared}"

    def _wanted_bytes(self, device: str) -> int | None:
        try:
            return self._memory_bytes[device]
        except KeyError:
            wanted = self._memory_bytes[device] = self._need.memory_bytes(device)
            return wanted


def _free_memory(need: Need, room: NodeRoom) -> int | None:
    """With that of the replica which is stopped first. What nobody knows of that one is known of the same model."""
    free, replaced = room.free_memory, need.instead_of
    if free is None or replaced is None:
        return free
    held = next((held for held in room.replicas if held.id == replaced), None)
    return free if held is None else free + (held.memory_bytes or need.memory_bytes(room.device) or 0)


def _rivals(need: Need, held: HeldReplica) -> bool:
    return held.model != need.model and not need.groups.isdisjoint(held.groups)


def _cheapest_eviction(
    need: Need,
    rooms: Sequence[NodeRoom],
    verdicts: list[Score | str | None],
    crowded: Collection[str],
    positions: Iterable[int],
) -> tuple[int, tuple[str, ...]] | None:
    """As few as possible; among those, what has been idle longest."""
    best: tuple[int, int, str] | None = None
    chosen: tuple[int, tuple[str, ...]] | None = None
    for position in positions:
        room = rooms[position]
        if room.id not in crowded:
            continue
        victims = _victims(need, room)
        if victims is None:
            if room.replicas:
                verdicts[position] = f"{verdicts[position]}, and what runs there is busy or must stay"
            continue
        rank = (len(victims), -min(victim.idle_ms for victim in victims), room.name)
        if best is None or rank < best:
            best, chosen = rank, (position, tuple(victim.id for victim in victims))
    return chosen


def _victims(need: Need, room: NodeRoom) -> list[HeldReplica] | None:
    """Rivals first, then the least recently used, until the need fits; None when it never does."""
    rivals = [held for held in room.replicas if _rivals(need, held)]
    going = Counter(rival.model for rival in rivals)
    if any(not rival.evictable or going[rival.model] > rival.spare for rival in rivals):
        return None
    victims = list(rivals)
    wanted, free = need.memory_bytes(room.device), _free_memory(need, room)
    if free is None or wanted is None:
        return victims
    missing = wanted - free - sum(rival.memory_bytes or 0 for rival in rivals)
    kept = (need.replaces, need.instead_of)
    others = (
        held
        for held in room.replicas
        if held.evictable and held.memory_bytes and held not in rivals and held.id not in kept
    )
    for held in sorted(others, key=lambda held: -held.idle_ms):
        if missing <= 0:
            break
        if going[held.model] < held.spare:
            going[held.model] += 1
            victims.append(held)
            missing -= held.memory_bytes or 0
    return victims if missing <= 0 else None


def _deleted_everywhere(judge: _Judge) -> Waiting | None:
    if judge.eligible or not judge.deleted:
        return None
    commonest, _ = Counter(judge.deleted).most_common(1)[0]
    return Waiting(reason=commonest, by_choice=True)


def _summary(rooms: Sequence[NodeRoom], reasons: Sequence[str]) -> str:
    """One sentence for the queue: the commonest reasons with how many nodes they ruled out."""
    names_of: dict[str, list[str]] = {}
    for room, reason in zip(rooms, reasons, strict=True):
        names_of.setdefault(reason, []).append(room.name)
    if not names_of:
        return "there are no nodes; add a machine with `corral worker --join`"
    ranked = sorted(names_of.items(), key=lambda item: -len(item[1]))[:3]
    parts = [f"{names[0] if len(names) == 1 else f'{len(names)} nodes'}: {reason}" for reason, names in ranked]
    return "no node can take it; " + "; ".join(parts)
