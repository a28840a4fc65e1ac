"""Requests that wait in a model's queue until one of its replicas has capacity.

Each API key has its own line, and the lines share the replicas by tokens, in classes by priority (`FairQueue`). A turn
costs what the request will probably use, and the difference to what it did use when the request ends (`Turn`). A
request that finds no capacity when its turn comes goes to the end of its line. When the queue is full, the key with the
longest line for its priority loses its newest request to a key that has fewer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from corral.core.access.key_limits import Priority
from corral.core.access.token_estimate import estimate_output, estimate_prompt
from corral.core.replicas.fair_queue import FairQueue
from corral.frontend.gateway.error_responses import queue_full

if TYPE_CHECKING:
    from corral.frontend.gateway.endpoints import ServedModel
    from corral.frontend.gateway.limits import GatewayLimits
    from corral.frontend.gateway.proxied_request import ProxiedRequest
    from corral.frontend.gateway.request_trace import RequestTrace


T = TypeVar("T")
WEIGHTS = {Priority.HIGH: 16, Priority.NORMAL: 4, Priority.LOW: 1}
"""The shares of the classes while all of them wait. The lowest still gets one token of 21."""


class Turn:
    """What a request has paid for its turns in a model's queue, until it is known what it used."""

    __slots__ = ("_key_id", "_prompt", "_weight", "paid", "served")

    def __init__(self, served: "ServedModel", key_id: str, *, prompt: int, weight: int) -> None:
        """`prompt`: its tokens, as estimated."""
        self.served = served
        self.paid = 0
        self._key_id = key_id
        self._prompt = prompt
        self._weight = weight

    def settle(self, tokens_in: int, tokens_out: int) -> None:
        """The request was answered, completely or in part."""
        self.served.answer_lengths.learn(self._key_id, tokens_out)
        self._charge(tokens_in + tokens_out)

    def forfeit(self, *, was_sent: bool) -> None:
        """The request got no answer. `was_sent`: a replica may have read its prompt."""
        self._charge(self._prompt if was_sent else 0)

    def _charge(self, tokens: int) -> None:
        self.served.queue.correct(self._key_id, tokens - self.paid, weight=self._weight)


class Waiter:
    """A place in the queue."""

    __slots__ = (
        "_cost",
        "_prompt",
        "_served",
        "_trace",
        "_weight",
        "deadline_s",
        "key_id",
        "owner",
        "position",
        "since_s",
    )

    def __init__(
        self,
        served: "ServedModel",
        key_id: str,
        owner: "ProxiedRequest",
        *,
        trace: "RequestTrace",
        cost: int,
        prompt: int,
        weight: int,
        now_s: float,
        deadline_s: float,
    ) -> None:
        """`prompt`: its part of the cost."""
        self._served = served
        self._trace = trace
        self._cost = cost
        self._prompt = prompt
        self._weight = weight
        self.key_id = key_id
        self.owner = owner
        self.since_s = now_s
        self.deadline_s = deadline_s
        self.position = served.queue.put(key_id, self, cost=cost, weight=weight) + 1

    def pay(self) -> None:
        """It was taken from the queue, which has charged its key."""
        turn = self._trace.turn
        if turn is None or turn.served is not self._served:
            if turn is not None:  # of another model of its route
                turn.forfeit(was_sent=not self._trace.has_turn)
            turn = self._trace.turn = Turn(self._served, self.key_id, prompt=self._prompt, weight=self._weight)
        turn.paid += self._cost

    def leave(self) -> bool:
        """False when the request was already taken from the queue."""
        return self._served.queue.remove(self.key_id, self)


def join_queue(
    served: "ServedModel",
    owner: "ProxiedRequest",
    *,
    key_id: str,
    priority: Priority,
    body: bytes,
    is_form: bool,
    stated: object,
    trace: "RequestTrace",
    limits: "GatewayLimits",
    now_s: float,
) -> Waiter:
    """Raises `queue_full`, except for requests that waited for a load, which were counted when that wait began, and for
    those whose answer has begun. `stated`: the longest answer that the client wants.

    A request that joins again, after a replica failed it, keeps its first position, and may wait for the rest of its
    time; once its answer has begun, for as long as at first."""
    weight = WEIGHTS[priority]
    if len(served.queue) >= limits.queue and trace.load_s is None and not owner.has_begun:
        why = f"every replica of {served.name!r} is busy"
        make_place(served.queue, key_id, weight, owner_of=lambda one: one.owner, why=why, limits=limits)
    deadline_s = now_s + limits.queue_wait_s - trace.waited_s
    prompt = estimate_prompt(body, is_form=is_form)
    cost = 1 if trace.has_turn else max(1, prompt + estimate_output(stated, served.answer_lengths.usual(key_id)))
    waiter = Waiter(
        served, key_id, owner,
        trace=trace, cost=cost, prompt=prompt, weight=weight, now_s=now_s, deadline_s=deadline_s,
    )  # fmt: skip
    trace.position = trace.position or waiter.position
    return waiter


def make_place(
    queue: FairQueue[T],
    key_id: str,
    weight: int,
    *,
    owner_of: Callable[[T], "ProxiedRequest"],
    why: str,
    limits: "GatewayLimits",
) -> None:
    """In a full queue: rejects the newest request of the longest line for the sake of a key that has fewer. Raises
    `queue_full` if no line is longer. `why`: requests wait, as a clause."""
    waiting = len(queue)
    found = queue.find_surplus(key_id, weight=weight, may_leave=lambda one: not owner_of(one).has_begun)
    if found is None:
        raise queue_full(why, waiting, limits)
    other, item = found
    queue.remove(other, item)
    owner, response = owner_of(item), queue_full(f"{why}, this key has the most requests in the queue", waiting, limits)
    owner.guard(owner.on_surplus, response)


def dispatch(served: "ServedModel", now_s: float) -> None:
    """Gives queued requests their turn while a replica has capacity, each at most once."""
    for _ in range(len(served.queue)):
        if served.endpoints and not any(endpoint.has_capacity(now_s) for endpoint in served.endpoints):
            return
        waiter = served.queue.take()
        if waiter is None:
            return
        waiter.pay()
        waiter.owner.guard(waiter.owner.on_turn)


def expire(served: "ServedModel", now_s: float) -> None:
    """Ends the wait of requests whose deadline has passed."""
    late = [waiter for waiter in served.queue if waiter.deadline_s <= now_s]
    for waiter in late:
        if waiter.leave():
            waiter.owner.guard(waiter.owner.on_queue_timeout)


def dismiss(served: "ServedModel") -> None:
    """Ends the wait of all requests for a model that was deleted or disabled."""
    for waiter in list(served.queue):
        if waiter.leave():
            waiter.owner.guard(waiter.owner.on_model_removed)
    for request in list(served.loading):
        request.guard(request.on_model_removed)
