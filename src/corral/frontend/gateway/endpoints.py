"""A model and its replicas as the gateway sees them: their routes, and how busy each replica is now."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from corral.core.backoff import Backoff
from corral.core.replicas.fair_queue import FairQueue
from corral.core.replicas.load_balancing import pick_by_hint, pick_two
from corral.core.replicas.routing import OPENAI, ModelRoute, RouteReplica
from corral.frontend.gateway.metrics import EndpointMetrics
from corral.frontend.gateway.queueing import Waiter
from corral.frontend.gateway.upstream.calls import UpstreamLink

AVOIDED = Backoff(base_s=1.0, cap_s=15.0)


class Endpoint:
    """One replica. It survives changes of the route table as long as it is the same process."""

    __slots__ = (
        "_default_limit", "_failures", "avoid_until_s", "driven", "hash_key", "head", "heard_s", "limit", "link",
        "local", "metrics", "node_head", "outstanding", "remote", "repeated", "repeated_head", "replica", "served",
    )  # fmt: skip

    def __init__(
        self,
        replica: RouteReplica,
        *,
        default_limit: int,
        link: UpstreamLink,
        driven: bool,
        metrics: EndpointMetrics,
        node_head: bytes,
        served: "ServedModel",
    ) -> None:
        self._default_limit = default_limit
        self.served = served
        self.follow(replica)
        self.link = link
        self.driven = driven
        """A driver speaks to it in its own protocol; the link only shows whether its port is open."""
        self.metrics = metrics
        self.node_head = node_head
        self.hash_key = replica.id.encode()
        self.head = (
            f"Host: {replica.address}\r\nAuthorization: Bearer {replica.token}\r\n"
            f"X-Corral-Replica: {replica.id}\r\nX-Corral-Generation: {replica.generation}\r\n"
        ).encode()
        self.repeated: object = None
        """The headers of its latest answer, and the head that clients receive for them: they seldom change."""
        self.repeated_head = b""
        self.local = 0
        """Open requests of this frontend."""
        self.remote = 0
        """Open requests of other frontends."""
        self.outstanding = 0
        """Both together."""
        self.avoid_until_s = 0.0
        self.heard_s = 0.0
        """When it last sent something, to the half second."""
        self._failures = 0

    def follow(self, replica: RouteReplica) -> None:
        """What its engine takes may change while it runs."""
        self.replica = replica
        self.limit = replica.capacity or self._default_limit

    def record_failure(self, now_s: float, *, for_s: float = 0.0) -> None:
        """Avoids the replica for a while, at least for `for_s`. Failures while it is avoided do not add up."""
        if self.avoid_until_s <= now_s:
            self._failures += 1
            self.avoid_until_s = now_s + AVOIDED.delay_s(self._failures)
        self.avoid_until_s = max(self.avoid_until_s, now_s + for_s)

    def has_capacity(self, now_s: float) -> bool:
        return self.outstanding < self.limit and self.avoid_until_s <= now_s

    def record_success(self) -> None:
        if self._failures:
            self._failures = 0
            self.avoid_until_s = 0.0

    def set_remote(self, count: int) -> None:
        self.remote = count
        self.outstanding = self.local + count


LESS_BUSY_OF_TWO = "two"


class Pick(NamedTuple):
    """How a replica was picked from several."""

    chosen: Endpoint
    chosen_outstanding: int
    other: Endpoint
    """The replica that it was compared with; `chosen` itself where a rule decided alone."""
    other_outstanding: int
    rule: str
    candidates: list[Endpoint]


PickFields = tuple[Endpoint, int, Endpoint, int, str, list[Endpoint]]
"""The fields of a `Pick` in order: a plain tuple, which the warm path makes because it costs an eighth."""
CHOSEN: Final = 0


class ServedModel:
    """One route, its endpoints, and the requests that wait for one of them."""

    def __init__(self, route: ModelRoute) -> None:
        self.follow(route)
        self.endpoints: list[Endpoint] = []
        self.queue: FairQueue[Waiter] = FairQueue()
        self.waiting_for_load = 0

    def follow(self, route: ModelRoute) -> None:
        self.route = route
        self.name = route.model
        self.has_prefix_affinity = route.policy.prefix_affinity

    def pick(
        self, failed: Collection[Endpoint], hint: bytes, rule: str, now_s: float, draw: Callable[[], float]
    ) -> PickFields | None:
        """None when every replica is at its limit or has failed this request. `rule`: the name of the hint."""
        endpoints = self.endpoints
        if not endpoints:
            return None
        if not hint:
            # The usual case needs no list: of two at random, the less busy one has capacity.
            chosen, other = pick_two(endpoints, draw)
            if chosen.outstanding < chosen.limit and chosen.avoid_until_s <= now_s and chosen not in failed:
                return chosen, chosen.outstanding, other, other.outstanding, LESS_BUSY_OF_TWO, endpoints
        free = [endpoint for endpoint in endpoints if endpoint.outstanding < endpoint.limit and endpoint not in failed]
        steady = [endpoint for endpoint in free if endpoint.avoid_until_s <= now_s]
        candidates = steady or free
        if not candidates:
            return None
        hinted = pick_by_hint(candidates, hint, self.route.policy) if hint else None
        if hinted is not None:
            return hinted, hinted.outstanding, hinted, hinted.outstanding, rule, candidates
        chosen, other = pick_two(candidates, draw)
        return chosen, chosen.outstanding, other, other.outstanding, LESS_BUSY_OF_TWO, candidates

    def have_all_failed(self, failed: Collection[Endpoint]) -> bool:
        """Whether every replica is among `failed`."""
        return all(endpoint in failed for endpoint in self.endpoints)


def needs_driver(replica: RouteReplica) -> bool:
    return replica.protocol != OPENAI
