"""Answers that the gateway gives itself because no replica answers the request."""

from collections.abc import Iterable, Mapping
from typing import Any

from corral.core import errors
from corral.core.replicas.load_jobs import loading_object
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import ModelLoading
from corral.frontend.http.errors import status_of

RETRY_AFTER_S = 2


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
    ) -> None:
        """`kind`: the error type, where it does not follow from the status. `more`: further fields of the body."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.more = more or {}
        self.allow = allow

    def headers(self) -> Iterable[bytes]:
        yield b"content-type: application/json\r\n"
        if self.status == 401:
            yield b"www-authenticate: Bearer\r\n"
        if self.allow:
            yield f"allow: {self.allow}\r\n".encode()
        if self.retry_after_s is not None:
            yield b"retry-after: %d\r\n" % max(1, round(self.retry_after_s))


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
    if isinstance(error, errors.RateLimited):
        return ErrorResponse(429, str(error), code=error.code, retry_after_s=error.retry_after_s)
    status = status_of(error)
    return ErrorResponse(status, str(error), code=error.code, retry_after_s=RETRY_AFTER_S if status == 503 else None)


def internal_error() -> ErrorResponse:
    return ErrorResponse(500, "internal error; see this frontend's log for details")


def stopping() -> ErrorResponse:
    return ErrorResponse(503, "this frontend is stopping; send the request again", code="stopping")


def queue_full(why: str, waiting: int, limits: GatewayLimits) -> ErrorResponse:
    message = f"{why}, and {waiting} requests are already waiting; retry later"
    return ErrorResponse(429, message, code="queue_full", retry_after_s=min(limits.queue_wait_s, 5.0))


def queue_timeout(model: str, position: int, limits: GatewayLimits) -> ErrorResponse:
    message = (
        f"every replica of {model!r} was busy for {limits.queue_wait_s:g} s"
        f" (initial queue position: {position}); retry later"
    )
    return ErrorResponse(503, message, code="queue_wait_exceeded", retry_after_s=5)


def no_other_replica(failure: str, model: str) -> ErrorResponse:
    message = f"{failure}. No other replica of {model!r} is available; retry the request."
    return ErrorResponse(502, message, code="replica_failed", retry_after_s=2)


def replica_unreachable(failure: str, model: str) -> ErrorResponse:
    message = f"{failure}. No replica of {model!r} became reachable in time; retry the request."
    return ErrorResponse(503, message, code="replica_unreachable", retry_after_s=5)


def incomplete(failure: str) -> ErrorResponse:
    return ErrorResponse(502, f"{failure}. The answer is incomplete.", code="replica_failed")


def replica_silent(limits: GatewayLimits) -> ErrorResponse:
    return ErrorResponse(504, f"the replica sent no data for {limits.silence_s:g} s", code="replica_silent")


def no_embeddings(model: str) -> ErrorResponse:
    message = (
        f"{model!r} cannot create embeddings: its backend was started without them."
        " Use a model whose configuration has `embeddings: true`."
    )
    return ErrorResponse(400, message, code="embeddings_not_supported", param="model")
