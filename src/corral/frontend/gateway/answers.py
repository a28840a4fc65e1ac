"""The lane's own answers, in OpenAI's envelope."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from corral.core import errors
from corral.core.replicas.load_jobs import loading_object
from corral.frontend.gateway.loads import ModelLoading
from corral.frontend.http.errors import status_of

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
}
RETRY_AFTER_S = 2


class Refusal(Exception):
    """An answer other than the one hoped for."""

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
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.kind = kind or _TYPES.get(status, "server_error")
        self.retry_after_s = retry_after_s
        self.more = more or {}
        self.allow = allow

    def body(self) -> bytes:
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error, **self.more})

    def event(self) -> bytes:
        """The same as the last event of a stream."""
        return b"data: " + self.body() + b"\n\n"

    def headers(self) -> Iterable[bytes]:
        yield b"content-type: application/json\r\n"
        if self.status == 401:
            yield b"www-authenticate: Bearer\r\n"
        if self.allow:
            yield f"allow: {self.allow}\r\n".encode()
        if self.retry_after_s is not None:
            yield b"retry-after: %d\r\n" % max(1, round(self.retry_after_s))


def refusal_of(error: errors.CorralError) -> Refusal:
    if isinstance(error, ModelLoading):
        return Refusal(
            503,
            str(error),
            code=error.code,
            kind=error.code,
            retry_after_s=error.retry_after_s,
            more={"loading": loading_object(error.loading)},
        )
    if isinstance(error, errors.RateLimited):
        return Refusal(429, str(error), code=error.code, retry_after_s=error.retry_after_s)
    status = status_of(error)
    return Refusal(status, str(error), code=error.code, retry_after_s=RETRY_AFTER_S if status == 503 else None)


def simple_answer(status: int, headers: Iterable[bytes], body: bytes, *, close: bool) -> bytes:
    return b"".join(
        (
            STATUS_LINES[status],
            *headers,
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n" if close else b"\r\n",
            body,
        )
    )
