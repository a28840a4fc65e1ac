"""What to do with a request that a replica failed. Decisions only: `ProxiedRequest` carries them out."""

from enum import Enum
from typing import TYPE_CHECKING

from corral.frontend.gateway.error_responses import ErrorResponse, no_other_replica, replica_unreachable

if TYPE_CHECKING:
    from corral.frontend.gateway.endpoints import Endpoint, ServedModel

ATTEMPTS_MAX = 8
UNSUPPORTED_STATUSES = frozenset({404, 405, 501})
"""A server answers with one of these when it has nothing at a path."""


class Failures:
    """The attempts of one request that failed."""

    __slots__ = ("count", "excluded", "latest", "unreachable")

    def __init__(self) -> None:
        self.count = 0
        self.excluded: tuple[Endpoint, ...] = ()
        """Replicas that are not tried again."""
        self.latest = ""
        """The latest failure, as a clause."""
        self.unreachable = False
        """No process was there to accept the request, so one that restarts can still answer it."""

    def add(self, endpoint: "Endpoint", text: str, *, unreachable: bool) -> None:
        self.count += 1
        self.excluded = (*self.excluded, endpoint)
        self.latest = f"the replica on node {endpoint.replica.node_name!r} failed: {text}"
        self.unreachable = unreachable

    def error(self, model: str) -> ErrorResponse:
        """The error response for the client when no further attempt is made."""
        return (replica_unreachable if self.unreachable else no_other_replica)(self.latest, model)


class Step(Enum):
    RETRY = "another replica may answer"
    WAIT = "every replica is unreachable; one may restart"
    PROBE = "the only replica closed the connection; its process may have exited"
    GIVE_UP = "no further attempt"


def next_step(failures: Failures, served: "ServedModel") -> Step:
    if not failures.excluded or (failures.count < ATTEMPTS_MAX and not served.have_all_failed(failures.excluded)):
        return Step.RETRY
    if failures.unreachable:
        return Step.WAIT if failures.count < ATTEMPTS_MAX else Step.GIVE_UP
    return Step.PROBE if failures.count == 1 else Step.GIVE_UP


class Verdict(Enum):
    RELAY = "the replica's own error is for the client"
    WRONG_PROCESS = "another process uses the replica's address"
    RETRY = "the replica is overloaded or stopping, and another one may answer"
    NO_EMBEDDINGS = "the backend runs without embeddings"
    HOLD = "the backend may not have this endpoint; the whole answer decides"


def judge_error(
    status: int, path: bytes, endpoint: "Endpoint", served: "ServedModel", excluded: "tuple[Endpoint, ...]"
) -> Verdict:
    """What an answer with status 400 or higher means."""
    if status in (401, 403) and not endpoint.driven:
        return Verdict.WRONG_PROCESS
    if status in (502, 503) and not served.have_all_failed((*excluded, endpoint)):
        return Verdict.RETRY
    if status == 501 and path.endswith(b"/embeddings"):
        return Verdict.NO_EMBEDDINGS
    if status in UNSUPPORTED_STATUSES and not endpoint.driven:
        return Verdict.HOLD
    return Verdict.RELAY
