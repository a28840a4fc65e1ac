"""Answers that the gateway gives itself because no replica answers the request."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from corral.core import errors
from corral.core.replicas.load_jobs import loading_object
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import CannotLoad, ModelLoading
from corral.frontend.http.errors import status_of

RETRY_AFTER_S = 2
STOPPING = "stopping"
BUSY = frozenset({"queue_full", "queue_wait_exceeded", "replica_unreachable"})
"""Codes of errors after which a model's configuration may say when to retry."""
_DO_NOT_RETRY = b"x-should-retry: false\r\n"
"""The clients of OpenAI and Anthropic would otherwise repeat any request with status 503."""


class ErrorResponse(Exception):
    """An error for the client. The client's protocol (`client_protocol.py`) gives it its form."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        retry_after_s: float | None = None,
        more: Mapping[str, Any] | None = None,
        allow: str = "",
        lines: bytes = b"",
    ) -> None:
        """`kind`: the error type, where it does not follow from the status. `more`: further fields of the body.
        `lines`: further lines of the head."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.more = more or {}
        self.allow = allow
        self.lines = lines

    def headers(self) -> Iterable[bytes]:
        yield b"content-type: application/json\r\n"
        if self.status == 401:
            yield b"www-authenticate: Bearer\r\n"
        if self.allow:
            yield f"allow: {self.allow}\r\n".encode()
        if self.retry_after_s is not None:
            yield b"retry-after: %d\r\n" % max(1, math.ceil(self.retry_after_s))
        if self.lines:
            yield self.lines


def error_response_of(error: errors.CorralError) -> ErrorResponse:
    if isinstance(error, ModelLoading):
        return ErrorResponse(
            503,
            str(error),
            code=error.code,
            kind=error.code,
            retry_after_s=error.retry_after_s,
            more={"loading": loading_object(error.loading)},
        )
    if isinstance(error, CannotLoad):
        return ErrorResponse(503, str(error), code=error.code, lines=_DO_NOT_RETRY)
    if isinstance(error, errors.RateLimited):
        return ErrorResponse(429, str(error), code=error.code, retry_after_s=error.retry_after_s)
    status = status_of(error)
    return ErrorResponse(status, str(error), code=error.code, retry_after_s=RETRY_AFTER_S if status == 503 else None)


def internal_error() -> ErrorResponse:
    return ErrorResponse(500, "internal error; see this frontend's log for details")


def stopping() -> ErrorResponse:
    return ErrorResponse(503, "this frontend is stopping; send the request again", code=STOPPING, retry_after_s=1)


def queue_full(why: str, waiting: int, limits: GatewayLimits) -> ErrorResponse:
    message = f"{why}, and {waiting} requests are already waiting; retry later"
    return ErrorResponse(429, message, code="queue_full", retry_after_s=min(limits.queue_wait_s, 5.0))


def queue_timeout(model: str, position: int, limits: GatewayLimits) -> ErrorResponse:
    message = (
        f"every replica of {model!r} was busy for {limits.queue_wait_s:g} s"
        f" (initial queue position: {position}); retry later"
    )
    return ErrorResponse(503, message, code="queue_wait_exceeded", retry_after_s=5)


def model_removed(model: str) -> ErrorResponse:
    message = (
        f"model {model!r} was deleted or disabled while the request waited for a replica. GET /v1/models lists the"
        " models you may use."
    )
    return ErrorResponse(404, message, code="model_not_found", param="model")


def no_other_replica(failure: str, model: str) -> ErrorResponse:
    message = f"{failure}. No other replica of {model!r} is available; retry the request."
    return ErrorResponse(502, message, code="replica_failed", retry_after_s=2)


def replica_unreachable(failure: str, model: str) -> ErrorResponse:
    message = f"{failure}. No replica of {model!r} became reachable in time; retry the request."
    return ErrorResponse(503, message, code="replica_unreachable", retry_after_s=5)


def looped(model: str) -> ErrorResponse:
    message = (
        f"this request for {model!r} came back to the attached endpoint that led here: the endpoint's URL is an address"
        " of the cluster that sends to it"
    )
    return ErrorResponse(508, message, code="endpoint_loop", lines=_DO_NOT_RETRY)


def incomplete(failure: str, why: str = "") -> ErrorResponse:
    """`why`: it was not continued at another replica, as a clause."""
    reason = f", and was not continued at another replica: {why}" if why else ""
    return ErrorResponse(502, f"{failure}. The answer is incomplete{reason}.", code="replica_failed")


def replica_silent(limits: GatewayLimits) -> ErrorResponse:
    return ErrorResponse(504, f"the replica sent no data for {limits.silence_s:g} s", code="replica_silent")


def no_embeddings(model: str) -> ErrorResponse:
    message = (
        f"{model!r} cannot create embeddings: its backend was started without them."
        " Use a model whose configuration has `embeddings: true`."
    )
    return ErrorResponse(400, message, code="embeddings_not_supported", param="model")
