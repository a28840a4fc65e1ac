"""A model and its replicas as the gateway sees them: their routes, and how busy each replica is now."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from corral.core.access.answer_lengths import AnswerLengths
from corral.core.backends.serving_figures import VersionKey
from corral.core.backoff import Backoff
from corral.core.replicas.answer_faults import AnswerFaults, Blame
from corral.core.replicas.fair_queue import FairQueue
from corral.core.replicas.load_balancing import pick_by_hint, pick_two, pick_two_weighted
from corral.core.replicas.routing import OPENAI, ModelRoute, RouteReplica
from corral.frontend.gateway.attached import AttachedTarget
from corral.frontend.gateway.metrics import EndpointMetrics
from corral.frontend.gateway.queueing import Waiter
from corral.frontend.gateway.upstream.calls import UpstreamLink

if TYPE_CHECKING:
    from corral.frontend.gateway.proxied_request import ProxiedRequest

AVOIDED = Backoff(base_s=1.0, cap_s=15.0)
SUSPECTED = 1e-9
"""An `avoid_until_s` that has passed: nobody avoids the endpoint, but its next success is recorded."""


class Endpoint:
    """One replica. It survives changes of the route table as long as it is the same process."""

    __slots__ = (
        "_avoided_by",
        "_default_limit",
        "_failures",
        "_faults",
        "attached",
        "avoid_until_s",
        "driven",
        "hash_key",
        "head",
        "heard_s",
        "limit",
        "link",
        "local",
        "metrics",
        "node_head",
        "outstanding",
        "remote",
        "repeated",
        "repeated_head",
        "replica",
        "served",
        "speaks",
        "version_key",
        "weight",
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
        attached = replica.attached
        self.attached = AttachedTarget(replica.id, attached, replica.token) if attached is not None else None
        """Set for a server that Corral does not start: its paths, its names and its form may differ."""
        self.head = self.attached.head if self.attached is not None else _head(replica)
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
        """When requests avoid it no longer. Not 0 from a failure until the next success."""
        self.heard_s = 0.0
        """When it last sent something, to the half second."""
        self._failures = 0
        self._faults: AnswerFaults | None = None
        self._avoided_by: dict[str, tuple[float, int]] = {}
        """Until when, and for how many failures, by keys whose requests alone it answered with errors."""

    def follow(self, replica: RouteReplica) -> None:
        """What its engine takes may change while it runs."""
        self.replica = replica
        self.speaks = frozenset(path.encode() for path in replica.endpoints)
        """Paths of client APIs that need no translation."""
        self.limit = replica.capacity or self._default_limit
        self.weight = replica.weight
        self.version_key = VersionKey(self.served.name, replica.node_id, replica.backend_digest)

    def record_failure(self, now_s: float, *, for_s: float = 0.0) -> None:
        """Avoids the replica for a while, at least for `for_s`. Failures while it is avoided do not add up."""
        if self.avoid_until_s <= now_s:
            self._failures += 1
            self.avoid_until_s = now_s + AVOIDED.delay_s(self._failures)
        self.avoid_until_s = max(self.avoid_until_s, now_s + for_s)

    def record_error_answer(self, key_id: str, request: bytes, now_s: float, *, for_s: float) -> None:
        """An error that may be the request's fault as well as the server's. As long as only few requests fail, or those
        of one key, nobody else avoids it."""
        faults = self._faults = self._faults or AnswerFaults()
        self.avoid_until_s = self.avoid_until_s or SUSPECTED
        match faults.add(key_id, hash(request)):
            case Blame.SERVER:
                self.record_failure(now_s, for_s=for_s)
            case Blame.KEY:
                until_s, count = self._avoided_by.get(key_id, (0.0, 0))
                if until_s <= now_s:
                    until_s, count = now_s + AVOIDED.delay_s(count + 1), count + 1
                self._avoided_by[key_id] = max(until_s, now_s + for_s), count
                self.served.has_suspects = True
            case Blame.NONE:
                pass

    def is_avoided_by(self, key_id: str, now_s: float) -> bool:
        return bool(self._avoided_by) and self._avoided_by.get(key_id, (0.0, 0))[0] > now_s

    @property
    def is_suspect(self) -> bool:
        """Whether any key avoids it, or did lately."""
        return bool(self._avoided_by)

    def has_capacity(self, now_s: float) -> bool:
        return self.outstanding < self.limit and self.avoid_until_s <= now_s

    def record_success(self) -> None:
        self._failures = 0
        self.avoid_until_s = 0.0
        if self._faults is not None:
            self._faults = None
            self._avoided_by.clear()

    def set_remote(self, count: int) -> None:
        self.remote = count
        self.outstanding = self.local + count

    @property
    def described(self) -> str:
        """For clients. The address of an attached server is for administrators."""
        if self.attached is not None:
            return "an attached endpoint"
        return f"the replica on node {self.replica.node_name!r}"

    @property
    def health_probe(self) -> bytes:
        """A request that the server answers whenever it runs. Empty for a gRPC backend, whose port is only opened:
        while it works, such a backend may answer nothing else."""
        if self.attached is not None:
            return self.attached.probe
        return b"" if self.driven else b"GET /health HTTP/1.1\r\n%bConnection: close\r\n\r\n" % self.head


def _head(replica: RouteReplica) -> bytes:
    return (
        f"Host: {replica.address}\r\nAuthorization: Bearer {replica.token}\r\n"
        f"X-Corral-Replica: {replica.id}\r\nX-Corral-Generation: {replica.generation}\r\n"
    ).encode()


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
        self.set_endpoints([])
        self.queue: FairQueue[Waiter] = FairQueue()
        self.answer_lengths = AnswerLengths()
        """Of the requests that waited in the queue."""
        self.loading: FairQueue[ProxiedRequest] = FairQueue()
        """The requests that wait for a load. All of them leave together; the queue tells whose there are too many."""
        self.is_removed = False
        """Deleted or disabled: no request waits for it."""
        self.has_suspects = False
        """Whether single keys may avoid an endpoint."""
        self.load_again_s = 0.0
        """When a load may be requested again that no request waits for."""

    def follow(self, route: ModelRoute) -> None:
        self.route = route
        self.name = route.model
        self.has_prefix_affinity = route.policy.prefix_affinity

    def set_endpoints(self, endpoints: list[Endpoint]) -> None:
        self.endpoints = endpoints
        self._is_weighted = len({endpoint.weight for endpoint in endpoints}) > 1
        self._pick_two = pick_two_weighted if self._is_weighted else pick_two
        self.is_partial = any(endpoint.attached is not None and endpoint.attached.is_partial for endpoint in endpoints)
        """Whether an endpoint has only some of the paths that replicas have."""

    def pick(
        self, failed: Collection[Endpoint], hint: bytes, rule: str, now_s: float, draw: Callable[[], float]
    ) -> PickFields | None:
        """None when every replica is at its limit or has failed this request. `rule`: the name of the hint."""
        endpoints = self.endpoints
        if not endpoints:
            return None
        if not hint:
            # The usual case needs no list: of two at random, the less busy one has capacity.
            chosen, other = self._pick_two(endpoints, draw)
            if chosen.outstanding < chosen.limit and chosen.avoid_until_s <= now_s and chosen not in failed:
                return chosen, chosen.outstanding, other, other.outstanding, LESS_BUSY_OF_TWO, endpoints
        free = [endpoint for endpoint in endpoints if endpoint.outstanding < endpoint.limit and endpoint not in failed]
        steady = [endpoint for endpoint in free if endpoint.avoid_until_s <= now_s]
        candidates = steady or free
        if not candidates:
            return None
        hinted = pick_by_hint(candidates, hint, self.route.policy, is_weighted=self._is_weighted) if hint else None
        if hinted is not None:
            return hinted, hinted.outstanding, hinted, hinted.outstanding, rule, candidates
        chosen, other = self._pick_two(candidates, draw)
        return chosen, chosen.outstanding, other, other.outstanding, LESS_BUSY_OF_TWO, candidates

    def avoided_by(self, key_id: str, now_s: float) -> tuple[Endpoint, ...]:
        """The endpoints that answer this key's requests with errors."""
        found = tuple(endpoint for endpoint in self.endpoints if endpoint.is_avoided_by(key_id, now_s))
        if not found:
            self.has_suspects = any(endpoint.is_suspect for endpoint in self.endpoints)
        return found

    def have_all_failed(self, failed: Collection[Endpoint]) -> bool:
        """Whether every replica is among `failed`."""
        return all(endpoint in failed for endpoint in self.endpoints)


def needs_driver(replica: RouteReplica) -> bool:
    return replica.protocol != OPENAI
