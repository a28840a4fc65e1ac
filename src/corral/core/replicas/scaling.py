"""How many replicas a model should have now, and which of them go: values in, a plan out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from corral.core.errors import InvalidInput

DRAIN_WITHIN_MS = 10 * 60_000
"""A replica that is being replaced may finish what it is answering, and wait for its successor where others serve, but
not for ever."""
PLACED_WITHIN_MS = 15_000
"""A successor for which there is room has been given its place by then."""
REPLICAS_MOST = 10_000
LOADS_WITHOUT_PLACE_MOST = 64
"""Of one model: those behind them would wait for the same, and are asked for as these find their places."""

RoutePolicyName = Literal["", "round_robin", "prefix_cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """What an administrator wants of one model."""

    model: str
    selector: Mapping[str, str] = field(default_factory=dict)
    min_replicas: int = 0
    max_replicas: int = 0
    """0 is no limit."""
    spread_all: bool = False
    route_policy: str = ""
    balance_abs_threshold: int = 0
    balance_rel_threshold: float = 0.0

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidInput("model_name is required")
        if self.min_replicas < 0 or self.max_replicas < 0:
            raise InvalidInput("min_replicas and max_replicas are 0 or more")
        if max(self.min_replicas, self.max_replicas) > REPLICAS_MOST:
            raise InvalidInput(f"min_replicas and max_replicas are {REPLICAS_MOST} at most")
        if self.max_replicas and self.min_replicas > self.max_replicas:
            raise InvalidInput(f"min_replicas {self.min_replicas} is more than max_replicas {self.max_replicas}")
        if self.spread_all and (self.min_replicas or self.max_replicas):
            raise InvalidInput("spread_all is one replica on every matching node; leave min and max out")
        if self.route_policy not in ("", "round_robin", "prefix_cache"):
            raise InvalidInput(f"route_policy {self.route_policy!r} is neither round_robin nor prefix_cache")
        if self.balance_abs_threshold < 0:
            raise InvalidInput("balance_abs_threshold is 0 or more")
        if self.balance_rel_threshold and self.balance_rel_threshold < 1:
            raise InvalidInput("balance_rel_threshold is 0 or at least 1")

    @property
    def kept(self) -> int:
        """As many serve while others change places."""
        return max(1, self.min_replicas)

    @property
    def is_managed(self) -> bool:
        return self.spread_all or self.min_replicas > 0 or self.max_replicas > 0


def check_prefix_match(value: float | None) -> None:
    """Of LocalAI's scheduling; who sets it would wait for an effect that never comes."""
    if value:
        raise InvalidInput(
            "min_prefix_match has no effect in Corral: with route_policy prefix_cache, requests that begin alike"
            " go to the same replica, whatever share of them matches. Leave it out or set it to 0"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPace:
    cool_down_ms: int = 30_000
    """Between two changes of one model by load; keeping to a minimum or a selector does not wait for it."""
    idle_ms: int = 5 * 60_000
    """Without a request for this long, a replica above the minimum goes."""
    idle_ttl_ms: int | None = None
    """The same for the last one; None keeps it."""
    drain_ms: int = DRAIN_WITHIN_MS
    """How long open requests may keep a replica that has to go."""
    deleted_drain_ms: int = 60_000
    """The same where its model was deleted or disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    id: str
    node_id: str
    slot: int
    state: str
    in_flight: int = 0
    idle_ms: int = 0
    why_not: str = ""
    """Why it has to go: its node is drained, its backend or its model's configuration changed. Empty: it may stay."""
    routed: bool = True
    """It gets traffic until a successor serves; not so one that others serve for."""
    successor: bool = False
    """A load is under way that takes its place."""
    draining_ms: int = 0
    """Since it was told to take no new requests."""
    away: bool = False
    """Its node is not healthy: it may serve, and nobody may count on it."""
    drain_within_ms: int | None = None
    """For one whose successor waits for its memory; None is as long as any other may."""
    leaving_ms: int | None = None
    """Since its node is being drained; None where it is not."""
    outdated_ms: int | None = None
    """Since a newer revision of its model serves; None where none does."""
    trial: bool = False
    """What takes its place is to be of the pending revision."""

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
    """A load job without a place: it waits for room, or has failed and is quiet for a while."""

    id: str
    replaces: str | None = None
    node_id: str | None = None
    stops_first: bool = False
    """The replica it replaces is, or was, stopped for it: whatever the numbers say, one has to serve again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """All that one look knows about a model."""

    scheduling: Scheduling
    matching_nodes: tuple[str, ...] = ()
    """Healthy, not draining, and chosen by the selector."""
    away_nodes: frozenset[str] = frozenset()
    """Not healthy now, which is no reason to end what they run."""
    replicas: tuple[ReplicaView, ...] = ()
    loads: tuple["Load", ...] = ()
    """Load jobs that have no place yet, oldest first."""
    failed: tuple["Load", ...] = ()
    """Those that have failed and been quiet for long enough: the next one goes on from their attempts."""
    loads_for_nodes: frozenset[str] = frozenset()
    """Where loads are meant to go, with a place or without."""
    waiting: int = 0
    """Requests that wait for a free replica."""
    since_action_ms: int | None = None
    pace: ScalingPace = ScalingPace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    why: str
    node_id: str | None = None
    replaces: str | None = None
    trial: bool = False
    """Of the model's pending revision."""


@dataclass(frozen=True, slots=True)
class Remove:
    replica_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    add: tuple[Add, ...] = ()
    drain: tuple[Remove, ...] = ()
    """Take no new requests from now on."""
    stop: tuple[Remove, ...] = ()
    forget: tuple[str, ...] = ()
    """Load jobs that nobody wants any more."""
    by_load: bool = False
    """An answer to traffic, so that the cool-down begins."""


def plan_scaling(view: ModelView) -> ScalingPlan:
    plan = _spread(view) if view.scheduling.spread_all else _keep(view)
    return replace(plan, forget=plan.forget + _over(view))


def _over(view: ModelView) -> tuple[str, ...]:
    """Failed successors of replicas that stay after all, or have gone: nobody tries that again."""
    leaving = {replica.id for replica in view.replicas if not replica.fits}
    return tuple(
        load.id
        for load in view.failed
        if load.replaces is not None and load.replaces not in leaving and not load.stops_first
    )


def _keep(view: ModelView) -> ScalingPlan:
    forget = _unwanted(view)
    successors = _successors(view)
    serving = [replica for replica in view.replicas if replica.serves]
    coming = sum(replica.coming for replica in view.replicas)
    arriving = len(view.loads) - len(forget) + coming + len(successors)
    drain, stop = _leave(view)
    short = view.scheduling.min_replicas - len(serving) - arriving
    missing = max(0, min(short, LOADS_WITHOUT_PLACE_MOST - len(view.loads)))
    if missing:
        why = f"{view.scheduling.min_replicas} are wanted at least"
        successors += [Add(why=why) for _ in range(missing)]
    elif _must_grow(view, serving, arriving):
        more = (Add(why="all replicas are busy"),)
        return ScalingPlan(add=more, drain=drain, stop=stop, forget=forget, by_load=True)
    surplus = _over_maximum(view, serving) or (_idle(view, serving) if not arriving and not missing else ())
    return ScalingPlan(add=tuple(successors), drain=drain, stop=stop + surplus, forget=forget, by_load=bool(surplus))


def _unwanted(view: ModelView) -> tuple[str, ...]:
    """Loads of an earlier wish, newest first: what serves or comes already is enough without them."""
    leaving = {replica.id for replica in view.replicas if replica.state == "ready" and not replica.fits}
    serving = [replica for replica in view.replicas if replica.serves]
    there = len(serving) + sum(replica.coming for replica in view.replicas)
    takes_over = {load.id for load in view.loads if load.replaces in leaving or load.stops_first}
    successors = len(takes_over) + len(_successors(view))
    others = [load for load in view.loads if load.id not in takes_over]
    least = max(view.scheduling.min_replicas, 1, len(serving) + int(_is_busy(view, serving)))
    wanted = max(0, least - there - successors)
    return tuple(load.id for load in others[wanted:])


def _successors(view: ModelView) -> list[Add]:
    """One for each replica that has to go, so that nobody notices, and for each that was stopped in vain."""
    leaving = [
        Add(why=f"it takes over from another: {replica.why_not}", replaces=replica.id, trial=replica.trial)
        for replica in view.replicas
        if replica.state == "ready" and not replica.fits and not replica.successor
    ]
    known = {add.replaces for add in leaving}
    stopped = [
        Add(why="the replica it takes over from was stopped for it", replaces=load.replaces)
        for load in view.failed
        if load.stops_first and load.replaces not in known
    ]
    return leaving + stopped


def _leave(view: ModelView) -> tuple[tuple[Remove, ...], tuple[Remove, ...]]:
    """Who has to go ends when it is idle, and takes nothing new before; a routed one waits for its successor, which
    drains it on becoming ready."""
    drain, stop = [], []
    for replica in view.replicas:
        within_ms = view.pace.drain_ms if replica.drain_within_ms is None else replica.drain_within_ms
        done = replica.in_flight == 0 or replica.draining_ms >= within_ms
        if replica.state == "draining" and done:
            stop.append(Remove(replica.id, replica.why_not or "another has taken its place"))
        elif replica.state == "failed" or (replica.state in ("starting", "loading") and not replica.fits):
            stop.append(Remove(replica.id, replica.why_not or "it failed"))
        elif replica.state == "ready" and not replica.fits and not replica.routed:
            drain.append(Remove(replica.id, replica.why_not))
    return tuple(drain), tuple(stop)


def release_leaving(replicas: Sequence[ReplicaView], scheduling: Scheduling) -> list[ReplicaView]:
    """Of those on nodes that are being drained, none waits for its successor any longer once as many as are wanted
    serve elsewhere; nor, where any do, for one that finds no place, or beyond the limit. One of an older revision waits
    for its successor while fewer than are wanted are of the newer one, and else within the same limits."""
    elsewhere = sum(replica.serves and not replica.away for replica in replicas)
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
    """At once, whatever else is under way."""
    most = view.scheduling.max_replicas
    over = len(serving) - most if most else 0
    return tuple(Remove(one.id, "there are more than max_replicas") for one in _idle_first(serving)[: max(0, over)])


def _idle(view: ModelView, serving: list[ReplicaView]) -> tuple[Remove, ...]:
    """Above the minimum one by one after a quiet time; the last one by its idle limit."""
    scheduling, idle = view.scheduling, _idle_first(serving)
    if not _cooled(view):
        return ()
    ttl_ms = view.pace.idle_ttl_ms
    if scheduling.min_replicas == 0 and len(serving) == 1:
        unused = ttl_ms is not None and all(replica.idle_ms >= ttl_ms for replica in idle)
        return tuple(Remove(replica.id, "nobody used it for longer than its idle limit") for replica in idle if unused)
    if len(serving) > max(scheduling.min_replicas, 1):
        unused_long = [replica for replica in idle if replica.idle_ms >= view.pace.idle_ms]
        return tuple(Remove(replica.id, "the others serve what there is to serve") for replica in unused_long[:1])
    return ()


def _for_node(node_id: str, before: ReplicaView | None) -> Add:
    why = "one is wanted on every matching node"
    if before is None:
        return Add(why=why, node_id=node_id)
    return Add(why=why, node_id=node_id, replaces=before.id, trial=before.trial)


def _spread(view: ModelView) -> ScalingPlan:
    """One on each matching node, enforced node by node."""
    by_node: dict[str, list[ReplicaView]] = {}
    for replica in view.replicas:
        if replica.serves or replica.coming:
            by_node.setdefault(replica.node_id, []).append(replica)
    matching = set(view.matching_nodes)
    missing = [node for node in view.matching_nodes if node not in by_node and node not in view.loads_for_nodes]
    surplus = []
    for node, replicas in by_node.items():
        if node not in matching and node not in view.away_nodes:
            surplus += [Remove(replica.id, "its node does not match any more") for replica in replicas]
            continue
        ready_first = sorted(replicas, key=lambda replica: (replica.state != "ready", replica.slot))
        surplus += [Remove(replica.id, "one on each node is enough") for replica in ready_first[1:]]
    drain, stop = _leave(view)
    busy = {replica.id for replica in view.replicas if replica.in_flight > 0}
    elsewhere = [load.id for load in view.loads if load.node_id not in matching]
    taken_over = {replica.node_id: replica for replica in view.replicas if not replica.fits}
    return ScalingPlan(
        add=tuple(_for_node(node, taken_over.get(node)) for node in missing),
        drain=drain,
        stop=stop + tuple(remove for remove in surplus if remove.replica_id not in busy),
        forget=tuple(elsewhere) if by_node else (),
    )
