"""A model and its replicas as the lane sees them: what routes say, and how busy each one is now."""

from collections.abc import Callable, Collection
from typing import Protocol

from corral.core.backoff import Backoff
from corral.core.replicas.fair_queue import FairQueue
from corral.core.replicas.load_balancing import pick_by_hint, pick_two
from corral.core.replicas.routing import OPENAI, ModelRoute, RouteReplica
from corral.frontend.gateway.metrics import TargetMeters
from corral.frontend.gateway.upstream.calls import Link

AVOIDED = Backoff(base_s=1.0, cap_s=15.0)
"""How long a replica that failed gets no requests."""


class Endpoint:
    """One replica. Kept over changes of the table for as long as it is the same process."""

    __slots__ = (
        "_failures", "avoid_until_s", "driven", "hash_key", "head", "heard_s", "limit", "link", "local", "meters",
        "node_head", "outstanding", "remote", "repeated", "repeated_head", "replica", "served",
    )  # fmt: skip

    def __init__(
        self,
        replica: RouteReplica,
        *,
        limit: int,
        link: Link,
        driven: bool,
        meters: TargetMeters,
        node_head: bytes,
        served: "ServedModel",
    ) -> None:
        self.replica = replica
        self.served = served
        self.limit = limit
        self.link = link
        self.driven = driven
        """A driver speaks to it, in its own way; the link only tells whether somebody listens."""
        self.meters = meters
        self.node_head = node_head
        self.hash_key = replica.id.encode()
        self.head = (
            f"Host: {replica.address}\r\nAuthorization: Bearer {replica.token}\r\n"
            f"X-Corral-Replica: {replica.id}\r\nX-Corral-Generation: {replica.generation}\r\n"
        ).encode()
        self.repeated: object = None
        """Headers of its latest answer, and what clients get in their place: they seldom change."""
        self.repeated_head = b""
        self.local = 0
        self.remote = 0
        self.outstanding = 0
        self.avoid_until_s = 0.0
        self.heard_s = 0.0
        """When it last said something, to the half second."""
        self._failures = 0

    def note_failure(self, now_s: float, *, for_s: float = 0.0) -> None:
        """Avoided for a while, at least for `for_s`. Many requests that fail at once are one failure."""
        if self.avoid_until_s <= now_s:
            self._failures += 1
            self.avoid_until_s = now_s + AVOIDED.delay_s(self._failures)
        self.avoid_until_s = max(self.avoid_until_s, now_s + for_s)

    def has_room(self, now_s: float) -> bool:
        return self.outstanding < self.limit and self.avoid_until_s <= now_s

    def note_success(self) -> None:
        if self._failures:
            self._failures = 0
            self.avoid_until_s = 0.0

    def set_remote(self, count: int) -> None:
        self.remote = count
        self.outstanding = self.local + count


LESS_BUSY_OF_TWO = "two"
Pick = tuple[Endpoint, int, Endpoint, int, str, list[Endpoint]]
"""The chosen one and its open requests, the other one of two and its, the rule, and who could have been chosen."""


class ServedModel:
    """One route, its targets, and who waits for one of them."""

    def __init__(self, route: ModelRoute) -> None:
        self.follow(route)
        self.targets: list[Endpoint] = []
        self.queue: FairQueue[Waiter] = FairQueue()
        self.waiting_for_load = 0

    def follow(self, route: ModelRoute) -> None:
        self.route = route
        self.name = route.model
        self.has_prefix_affinity = route.policy.prefix_affinity

    def pick(
        self, failed: Collection[Endpoint], hint: bytes, rule: str, now_s: float, draw: Callable[[], float]
    ) -> "Pick | None":
        """None when there is none with room that has not failed this request already. `rule` names the hint."""
        targets = self.targets
        if not targets:
            return None
        if not hint:
            # The usual case without a list: two at random, and the better one has room.
            chosen, other = pick_two(targets, draw)
            if chosen.outstanding < chosen.limit and chosen.avoid_until_s <= now_s and chosen not in failed:
                return chosen, chosen.outstanding, other, other.outstanding, LESS_BUSY_OF_TWO, targets
        free = [target for target in targets if target.outstanding < target.limit and target not in failed]
        steady = [target for target in free if target.avoid_until_s <= now_s]
        candidates = steady or free
        if not candidates:
            return None
        hinted = pick_by_hint(candidates, hint, self.route.policy) if hint else None
        if hinted is not None:
            return hinted, hinted.outstanding, hinted, hinted.outstanding, rule, candidates
        chosen, other = pick_two(candidates, draw)
        return chosen, chosen.outstanding, other, other.outstanding, LESS_BUSY_OF_TWO, candidates

    def is_hopeless(self, failed: Collection[Endpoint]) -> bool:
        """Every replica there is has failed this request."""
        return all(target in failed for target in self.targets)


class Waits(Protocol):
    def on_turn(self) -> None: ...

    def on_waited_too_long(self) -> None: ...


class Waiter:
    """A place in line."""

    __slots__ = ("_served", "_who", "deadline_s", "owner", "position", "since_s")

    def __init__(self, served: ServedModel, who: str, owner: Waits, *, now_s: float, deadline_s: float) -> None:
        self._served = served
        self._who = who
        self.owner = owner
        self.since_s = now_s
        self.deadline_s = deadline_s
        self.position = served.queue.put(who, self) + 1

    def leave(self) -> bool:
        return self._served.queue.remove(self._who, self)


def needs_driver(replica: RouteReplica) -> bool:
    return replica.protocol != OPENAI
