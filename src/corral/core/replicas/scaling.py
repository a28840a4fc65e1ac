"""Scaling: how many replicas a model should have now, and which of them must end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from corral.core.errors import InvalidInput

DRAIN_WITHIN_MS = 10 * 60_000
"""How long a replica that is being replaced may finish its requests, and wait for its successor where others serve."""
PLACED_WITHIN_MS = 15_000
"""A successor for which there is capacity has been placed by then."""
REPLICAS_MOST = 10_000
LOADS_WITHOUT_PLACE_MOST = 64
"""Of one model. Further loads would wait for the same capacity; they are created as these are placed."""

RoutePolicyName = Literal["", "round_robin", "prefix_cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """The desired scheduling of one model, as an administrator set it."""

    model: str
    selector: Mapping[str, str] = field(default_factory=dict)
    min_replicas: int = 0
    max_replicas: int = 0
    """0 means no limit."""
    spread_all: bool = False
    route_policy: str = ""
    balance_abs_threshold: int = 0
    balance_rel_threshold: float = 0.0

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidInput("model_name is required")
        if self.min_replicas < 0 or self.max_replicas < 0:
            raise InvalidInput("min_replicas and max_replicas must be 0 or more")
        if max(self.min_replicas, self.max_replicas) > REPLICAS_MOST:
            raise InvalidInput(f"min_replicas and max_replicas must be {REPLICAS_MOST} or less")
        if self.max_replicas and self.min_replicas > self.max_replicas:
            raise InvalidInput(f"min_replicas ({self.min_replicas}) must not exceed max_replicas ({self.max_replicas})")
        if self.spread_all and (self.min_replicas or self.max_replicas):
            raise InvalidInput(
                "spread_all means one replica on every matching node; leave min_replicas and max_replicas out"
            )
        if self.route_policy not in ("", "round_robin", "prefix_cache"):
            raise InvalidInput(f"route_policy must be round_robin or prefix_cache, not {self.route_policy!r}")
        if self.balance_abs_threshold < 0:
            raise InvalidInput("balance_abs_threshold must be 0 or more")
        if self.balance_rel_threshold and self.balance_rel_threshold < 1:
            raise InvalidInput("balance_rel_threshold must be 0, or 1 or more")

    @property
    def kept(self) -> int:
        """So many must serve while other replicas are replaced."""
        return max(1, self.min_replicas)

    @property
    def is_managed(self) -> bool:
        return self.spread_all or self.min_replicas > 0 or self.max_replicas > 0


def check_prefix_match(value: float | None) -> None:
    """A field of LocalAI's scheduling without effect here. It is rejected, so that nobody relies on it."""
    if value:
        raise InvalidInput(
            "min_prefix_match has no effect in Corral: with route_policy prefix_cache, requests with the same prefix"
            " go to the same replica, however long the prefix is. Leave it out or set it to 0"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPace:
    cool_down_ms: int = 30_000
    """Between two changes of one model by traffic. Corrections towards a minimum or a selector do not wait for it."""
    idle_ms: int = 5 * 60_000
    """A replica above the minimum is removed after this long without a request."""
    idle_ttl_ms: int | None = None
    """The same for the last replica; None keeps it."""
    drain_ms: int = DRAIN_WITHIN_MS
    """How long open requests may keep a replica that must end."""
    deleted_drain_ms: int = 60_000
    """The same for a model that was deleted or disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    id: str
    node_id: str
    slot: int
    state: str
    in_flight: int = 0
    idle_ms: int = 0
    why_not: str = ""
    """Why it must end: its node drains, its backend or its model's configuration changed. Empty: it may stay."""
    routed: bool = True
    """It gets requests until a successor serves; False once others serve instead."""
    successor: bool = False
    """A load that replaces it is in progress."""
    draining_ms: int = 0
    """Since it gets no new requests."""
    unreliable: bool = False
    """Its node is not healthy: it may serve, but does not count towards the desired number."""
    drain_within_ms: int | None = None
    """Its own drain limit, when its successor waits for its memory; None means the usual one."""
    leaving_ms: int | None = None
    """Since its node drains; None when it does not."""
    outdated_ms: int | None = None
    """Since a newer revision of its model serves; None when none does."""
    canary: bool = False
    """Its successor loads the pending revision."""

    @property
    def fits(self) -> bool:
        return not self.why_not

    @property
    def serves(self) -> bool:
        return self.state == "ready" and self.fits

    @property
    def coming(self) -> bool:
        return self.state in ("starting", "loading") and self.fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load job without a place: it waits for capacity, or it failed and cools down."""

    id: str
    replaces: str | None = None
    node_id: str | None = None
    stops_first: bool = False
    """The replica it replaces is, or was, stopped for it: it must serve again, whatever the numbers say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """All that one reconcile knows about a model."""

    scheduling: Scheduling
    matching_nodes: tuple[str, ...] = ()
    """Ids of nodes that are healthy, not draining, and match the selector."""
    offline_nodes: frozenset[str] = frozenset()
    """Ids of nodes that are not healthy now, which is no reason to stop their replicas."""
    replicas: tuple[ReplicaView, ...] = ()
    loads: tuple["Load", ...] = ()
    """Load jobs that have no place yet, oldest first."""
    failed: tuple["Load", ...] = ()
    """Loads that failed and have cooled down. The next load continues their count of attempts."""
    loads_for_nodes: frozenset[str] = frozenset()
    """Ids of nodes that loads are meant for, placed or not."""
    waiting: int = 0
    """Number of requests that wait for a free replica."""
    since_action_ms: int | None = None
    pace: ScalingPace = ScalingPace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    why: str
    node_id: str | None = None
    replaces: str | None = None
    canary: bool = False
    """Load the model's pending revision."""


@dataclass(frozen=True, slots=True)
class Remove:
    replica_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    add: tuple[Add, ...] = ()
    drain: tuple[Remove, ...] = ()
    """Replicas that get no new requests from now on."""
    stop: tuple[Remove, ...] = ()
    forget: tuple[str, ...] = ()
    """Ids of load jobs that are obsolete."""
    by_load: bool = False
    """The plan is a reaction to traffic, so the cool-down begins."""


def plan_scaling(view: ModelView) -> ScalingPlan:
    plan = _spread(view) if view.scheduling.spread_all else _keep(view)
    return replace(plan, forget=plan.forget + _obsolete_failures(view))


def _obsolete_failures(view: ModelView) -> tuple[str, ...]:
    """Failed successors of replicas that stay after all or are gone."""
    leaving = {replica.id for replica in view.replicas if not replica.fits}
    return tuple(
        load.id
        for load in view.failed
        if load.replaces is not None and load.replaces not in leaving and not load.stops_first
    )


def _keep(view: ModelView) -> ScalingPlan:
    forget = _obsolete_loads(view)
    successors = _successors(view)
    serving = [replica for replica in view.replicas if replica.serves]
    coming = sum(replica.coming for replica in view.replicas)
    arriving = len(view.loads) - len(forget) + coming + len(successors)
    drain, stop = _plan_leaving(view)
    short = view.scheduling.min_replicas - len(serving) - arriving
    missing = max(0, min(short, LOADS_WITHOUT_PLACE_MOST - len(view.loads)))
    if missing:
        why = f"minimum replicas: {view.scheduling.min_replicas}"
        successors += [Add(why=why) for _ in range(missing)]
    elif _must_grow(view, serving, arriving):
        more = (Add(why="all replicas are busy"),)
        return ScalingPlan(add=more, drain=drain, stop=stop, forget=forget, by_load=True)
    surplus = _over_maximum(view, serving) or (_idle(view, serving) if not arriving and not missing else ())
    return ScalingPlan(add=tuple(successors), drain=drain, stop=stop + surplus, forget=forget, by_load=bool(surplus))


def _obsolete_loads(view: ModelView) -> tuple[str, ...]:
    """Loads beyond the desired number, newest first: enough replicas serve or start without them."""
    leaving = {replica.id for replica in view.replicas if replica.state == "ready" and not replica.fits}
    serving = [replica for replica in view.replicas if replica.serves]
    there = len(serving) + sum(replica.coming for replica in view.replicas)
    takes_over = {load.id for load in view.loads if load.replaces in leaving or load.stops_first}
    successors = len(takes_over) + len(_successors(view))
    others = [load for load in view.loads if load.id not in takes_over]
    least = max(view.scheduling.min_replicas, 1, len(serving) + int(_is_busy(view, serving)))
    needed = max(0, least - there - successors)
    return tuple(load.id for load in others[needed:])


def _successors(view: ModelView) -> list[Add]:
    """One for each ready replica that must end, and for each that was stopped for a load that failed."""
    leaving = [
        Add(why=f"it replaces a replica: {replica.why_not}", replaces=replica.id, canary=replica.canary)
        for replica in view.replicas
        if replica.state == "ready" and not replica.fits and not replica.successor
    ]
    known = {add.replaces for add in leaving}
    stopped = [
        Add(why="the replica that it replaces was stopped first", replaces=load.replaces)
        for load in view.failed
        if load.stops_first and load.replaces not in known
    ]
    return leaving + stopped


def _plan_leaving(view: ModelView) -> tuple[tuple[Remove, ...], tuple[Remove, ...]]:
    """A replica that must end drains first, and stops when it is idle. A routed one waits for its successor, which
    drains it when it becomes ready."""
    drain, stop = [], []
    for replica in view.replicas:
        within_ms = view.pace.drain_ms if replica.drain_within_ms is None else replica.drain_within_ms
        done = replica.in_flight == 0 or replica.draining_ms >= within_ms
        if replica.state == "draining" and done:
            stop.append(Remove(replica.id, replica.why_not or "another replica has replaced it"))
        elif replica.state == "failed" or (replica.state in ("starting", "loading") and not replica.fits):
            stop.append(Remove(replica.id, replica.why_not or "its load failed"))
        elif replica.state == "ready" and not replica.fits and not replica.routed:
            drain.append(Remove(replica.id, replica.why_not))
    return tuple(drain), tuple(stop)


def release_leaving(replicas: Sequence[ReplicaView], scheduling: Scheduling) -> list[ReplicaView]:
    """Ends the wait for successors. A replica on a draining node waits until the desired number serves elsewhere; if
    any serve elsewhere, it waits only for a successor that has a place, and within the limit. A replica of an older
    revision waits while fewer than desired are of the newer one, and then within the same limits."""
    elsewhere = sum(replica.serves and not replica.unreliable for replica in replicas)
    enough = elsewhere >= scheduling.kept
    comes = any(replica.state in ("starting", "loading") and replica.fits for replica in replicas)
    within_ms = DRAIN_WITHIN_MS if comes else PLACED_WITHIN_MS

    def may_go(replica: ReplicaView) -> bool:
        if replica.fits:
            return False
        if replica.leaving_ms is not None and (enough or (elsewhere > 0 and replica.leaving_ms >= within_ms)):
            return True
        return replica.outdated_ms is not None and enough and replica.outdated_ms >= within_ms

    return [replace(replica, routed=False) if may_go(replica) else replica for replica in replicas]


def _must_grow(view: ModelView, serving: list[ReplicaView], arriving: int) -> bool:
    scheduling = view.scheduling
    if not scheduling.is_managed or not serving or arriving or not _cooled(view):
        return False
    if scheduling.max_replicas and len(serving) >= scheduling.max_replicas:
        return False
    return _is_busy(view, serving)


def _is_busy(view: ModelView, serving: list[ReplicaView]) -> bool:
    return view.waiting > 0 or all(replica.in_flight > 0 for replica in serving)


def _cooled(view: ModelView) -> bool:
    return view.since_action_ms is None or view.since_action_ms >= view.pace.cool_down_ms


def _idle_first(serving: list[ReplicaView]) -> list[ReplicaView]:
    return sorted(
        (replica for replica in serving if replica.in_flight == 0),
        key=lambda replica: (-replica.slot, -replica.idle_ms, replica.id),
    )


def _over_maximum(view: ModelView, serving: list[ReplicaView]) -> tuple[Remove, ...]:
    """At once, whatever else is in progress."""
    most = view.scheduling.max_replicas
    over = len(serving) - most if most else 0
    return tuple(Remove(one.id, f"max_replicas is {most}") for one in _idle_first(serving)[: max(0, over)])


def _idle(view: ModelView, serving: list[ReplicaView]) -> tuple[Remove, ...]:
    """Above the minimum one at a time after the idle time; the last one after its own idle limit."""
    scheduling, idle = view.scheduling, _idle_first(serving)
    if not _cooled(view):
        return ()
    ttl_ms = view.pace.idle_ttl_ms
    if scheduling.min_replicas == 0 and len(serving) == 1:
        unused = ttl_ms is not None and all(replica.idle_ms >= ttl_ms for replica in idle)
        return tuple(Remove(replica.id, "it was idle for longer than its idle limit") for replica in idle if unused)
    if len(serving) > max(scheduling.min_replicas, 1):
        unused_long = [replica for replica in idle if replica.idle_ms >= view.pace.idle_ms]
        return tuple(Remove(replica.id, "it was idle, and the other replicas suffice") for replica in unused_long[:1])
    return ()


def _for_node(node_id: str, before: ReplicaView | None) -> Add:
    why = "spread_all: one replica on every matching node"
    if before is None:
        return Add(why=why, node_id=node_id)
    return Add(why=why, node_id=node_id, replaces=before.id, canary=before.canary)


def _spread(view: ModelView) -> ScalingPlan:
    """One replica on each matching node."""
    by_node: dict[str, list[ReplicaView]] = {}
    for replica in view.replicas:
        if replica.serves or replica.coming:
            by_node.setdefault(replica.node_id, []).append(replica)
    matching = set(view.matching_nodes)
    missing = [node for node in view.matching_nodes if node not in by_node and node not in view.loads_for_nodes]
    surplus = []
    for node, replicas in by_node.items():
        if node not in matching and node not in view.offline_nodes:
            surplus += [Remove(replica.id, "its node no longer matches the selector") for replica in replicas]
            continue
        ready_first = sorted(replicas, key=lambda replica: (replica.state != "ready", replica.slot))
        surplus += [Remove(replica.id, "spread_all: one replica per node") for replica in ready_first[1:]]
    drain, stop = _plan_leaving(view)
    busy = {replica.id for replica in view.replicas if replica.in_flight > 0}
    elsewhere = [load.id for load in view.loads if load.node_id not in matching]
    taken_over = {replica.node_id: replica for replica in view.replicas if not replica.fits}
    return ScalingPlan(
        add=tuple(_for_node(node, taken_over.get(node)) for node in missing),
        drain=drain,
        stop=stop + tuple(remove for remove in surplus if remove.replica_id not in busy),
        forget=tuple(elsewhere) if by_node else (),
    )
