"""What to do with a request that a replica failed. Decisions only: `ProxiedRequest` carries them out."""

from enum import Enum
from typing import TYPE_CHECKING

from corral.frontend.gateway.error_responses import ErrorResponse, no_other_replica, replica_unreachable
from corral.frontend.gateway.upstream.calls import Headers

if TYPE_CHECKING:
    from corral.frontend.gateway.endpoints import Endpoint, ServedModel

ATTEMPTS_MAX = 8
UNSUPPORTED_STATUSES = frozenset({404, 405, 501})
"""A server answers with one of these when it has nothing at a path."""


RETRY_AFTER_MAX_S = 60.0
RETRY_AFTER_MAX_DIGITS = 6
RETRIED_STATUSES = frozenset({408, 425, 429})
"""Of attached servers: what another one need not answer too. So are all from 500 on but 501."""
_OVERLOADED = frozenset({429, 503})


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
        self.latest = f"{endpoint.described} failed: {text}"
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
    REJECTED_KEY = "an attached server rejected its API key"
    REDIRECT = "an attached server refers to another address, which gets neither requests nor keys"
    RETRY = "the replica is overloaded or stopping, and another one may answer"
    ASK_ANOTHER = "an attached server lacks the model or the path, or refuses the request, and another one may not"
    NO_EMBEDDINGS = "the backend runs without embeddings"
    HOLD = "the backend may not have this endpoint; the whole answer decides"


def judge_error(
    status: int,
    path: bytes,
    endpoint: "Endpoint",
    served: "ServedModel",
    excluded: "tuple[Endpoint, ...]",
    *,
    has_fallback: bool = False,
) -> Verdict:
    """What an answer with status 400 or higher means; of an attached server, 300 or higher. `has_fallback`: another
    model of the request's route may answer."""
    is_last = not has_fallback and served.have_all_failed((*excluded, endpoint))
    if endpoint.attached is not None and (verdict := _judge_attached(status, is_last=is_last)):
        return verdict
    if status in (401, 403) and not endpoint.driven:
        return Verdict.WRONG_PROCESS
    if status in (502, 503) and not is_last:
        return Verdict.RETRY
    if status == 501 and path.endswith(b"/embeddings"):
        return Verdict.NO_EMBEDDINGS
    if status in UNSUPPORTED_STATUSES and not endpoint.driven:
        return Verdict.HOLD
    return Verdict.RELAY


def is_retried(status: int) -> bool:
    """Whether another server may answer a request that an attached one answered with this status."""
    return status in RETRIED_STATUSES or (status >= 500 and status != 501)


def retry_after_s(headers: Headers) -> float:
    """How long a server wants to be left alone; 0 if it does not say."""
    for name, value in headers.items():
        if name.lower() == b"retry-after" and value.isdigit() and len(value) <= RETRY_AFTER_MAX_DIGITS:
            return min(float(value), RETRY_AFTER_MAX_S)
    return 0.0


def record_error_answer(
    endpoint: "Endpoint", status: int, headers: Headers, *, key_id: str | None, request: bytes, now_s: float
) -> None:
    """Decides whether other requests should avoid a server that answered one with an error. What a replica says about
    its load counts at once, as does an attached server that says when to retry; anything else may be about the
    request."""
    for_s = retry_after_s(headers)
    if endpoint.attached is None or (status in _OVERLOADED and for_s):
        endpoint.record_failure(now_s, for_s=for_s)
    else:
        endpoint.record_error_answer(key_id or "", request, now_s, for_s=for_s)


def _judge_attached(status: int, *, is_last: bool) -> Verdict | None:
    """None: as for any replica. Another server may be in a better state, or have a better key, than this one."""
    if status < 400:
        return Verdict.REDIRECT
    if status == 401:
        return Verdict.REJECTED_KEY
    if is_retried(status):
        return Verdict.RELAY if is_last else Verdict.RETRY
    if is_last:
        return Verdict.RELAY if status == 403 else None
    return Verdict.ASK_ANOTHER if status == 403 or status in UNSUPPORTED_STATUSES else None
