"""A public route as the gateway follows it: which of its models gets a request, and in whose place."""

from collections.abc import Callable

from corral.core.replicas.public_routes import PublicRoute, TargetState, find_skipped, order_targets, pick_target
from corral.frontend.gateway.endpoints import Endpoint, ServedModel


class RoutedName:
    """A route with its models."""

    __slots__ = ("_names", "_tiers", "is_sticky", "name", "targets")

    def __init__(self, route: PublicRoute, models: dict[str, ServedModel]) -> None:
        """Models that are disabled are left out."""
        tiers = [[one for one in tier if one.model in models] for tier in route.tiers]
        self.name = route.name
        self.is_sticky = route.is_sticky
        self.targets = [models[one.model] for tier in tiers for one in tier]
        self._tiers = [[one.weight for one in tier] for tier in tiers]
        self._names = [served.name.encode() for served in self.targets]

    def plan(self, session: bytes, lines: bytes, draw: Callable[[], float]) -> "RoutePlan":
        """`lines`: further header lines of the answer."""
        hint = session if self.is_sticky else b""
        order = order_targets(self._tiers, draw=draw, hint=hint, names=self._names)
        return RoutePlan(self.name, [(tier, self.targets[at]) for tier, at in order], lines)


class RoutePlan:
    """One request on its route."""

    __slots__ = ("failed", "lines", "named", "route", "skipped", "targets", "tiers")

    def __init__(self, route: str, targets: list[tuple[int, ServedModel]], lines: bytes) -> None:
        self.route = route
        self.tiers = [tier for tier, _ in targets]
        self.targets = [served for _, served in targets]
        self.lines = lines
        self.named = route
        """The model that the request's body names now."""
        self.failed: set[ServedModel] = set()
        """Those that could not be loaded."""
        self.skipped: list[tuple[ServedModel, TargetState]] = []
        """Of earlier tiers than the chosen one, with the reason. Empty: it is no fallback."""

    def choose(self, state_of: Callable[[ServedModel], TargetState]) -> ServedModel:
        states = [TargetState.FAILED if served in self.failed else state_of(served) for served in self.targets]
        chosen = pick_target(states)
        known = dict(self.skipped)
        found = [at for at in find_skipped(self.tiers, chosen) if states[at] is not TargetState.UNSUITED]
        # The first reason counts: a target that was busy may be free by the time the request is sent again.
        self.skipped = [(self.targets[at], known.get(self.targets[at], states[at])) for at in found]
        return self.targets[chosen]

    @property
    def fallback_reason(self) -> str:
        """Why the first choice did not get it; empty where it did."""
        return self.skipped[0][1].value if self.skipped else ""

    def header_lines(self, served: ServedModel) -> bytes:
        """Visible to the client: the model that got the request and, for a fallback, why."""
        lines = f"x-corral-model: {served.name}\r\n"
        if self.skipped:
            lines += f"x-corral-fallback: {self.fallback_reason}\r\n"
        return self.lines + lines.encode("ascii", "replace")

    def has_other(self, served: ServedModel, excluded: tuple[Endpoint, ...]) -> bool:
        """Whether another target than `served` could still answer."""
        return any(
            other is not served and other not in self.failed and not other.have_all_failed(excluded)
            for other in self.targets
        )


def state_of_target(
    served: ServedModel,
    excluded: tuple[Endpoint, ...],
    *,
    avoided: tuple[Endpoint, ...] = (),
    without_path: int,
    now_s: float,
    has_turn: bool,
) -> TargetState:
    """`excluded`: endpoints that failed the request, and those without its path, of which there are `without_path`.
    `avoided`: by its key alone. `has_turn`: it need not wait behind the queue."""
    endpoints = served.endpoints
    if not endpoints:
        return TargetState.FAILED if served.is_removed else TargetState.AWAY
    if without_path == len(endpoints):
        return TargetState.UNSUITED
    if served.have_all_failed(excluded):
        return TargetState.FAILED
    if served.queue.length and not has_turn:
        return TargetState.BUSY
    unusable = excluded + avoided
    can_serve = any(endpoint not in unusable and endpoint.has_capacity(now_s) for endpoint in endpoints)
    return TargetState.FREE if can_serve else TargetState.BUSY
