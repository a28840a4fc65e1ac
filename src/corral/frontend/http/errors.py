"""Turns errors into answers; has the only table of status codes."""

import math

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from corral.core import errors
from corral.core.validation import describe_problem
from corral.frontend.http.client_paths import is_ollamas

log = structlog.get_logger()

STATUS: dict[type[errors.CorralError], int] = {
    errors.InvalidInput: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.RateLimited: 429,
    errors.Unavailable: 503,
    errors.OutcomeUnknown: 504,
    errors.CorralError: 500,
}
RETRY_AFTER_S = 2


def status_of(error: errors.CorralError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def error_response(
    status: int, message: str, kind: str, *, retry_after_s: float = RETRY_AFTER_S, path: str = ""
) -> JSONResponse:
    """`path`: that of the request. Ollama's clients read errors of its paths in another form."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status in (429, 503):
        headers["Retry-After"] = str(math.ceil(retry_after_s))
    if is_ollamas(path):
        body: dict[str, object] = {"error": message, "code": kind}
    else:
        body = {"error": {"code": status, "message": message, "type": kind}}
    return JSONResponse(body, status_code=status, headers=headers)


def corral_error_response(path: str, error: errors.CorralError) -> JSONResponse:
    kind = "node_error" if path.startswith("/api/node/") else error.code
    retry_after_s = error.retry_after_s if isinstance(error, errors.RateLimited) else RETRY_AFTER_S
    return error_response(status_of(error), str(error), kind, retry_after_s=retry_after_s, path=path)


async def _on_corral_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.CorralError)
    response = corral_error_response(request.url.path, error)
    if response.status_code >= 500:
        log.warning("request.failed", path=request.url.path, status=response.status_code, error=str(error))
    return response


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = []
    for problem in error.errors():
        if isinstance(error.body, bytes) and problem["loc"] == ("body",):
            problems.append(_describe_not_json(request))
            continue
        where = ".".join(str(part) for part in problem["loc"] if part != "body")
        what = describe_problem(problem["type"], context=problem.get("ctx", {}), message=str(problem["msg"]))
        problems.append(f"{where}: {what}" if where and problem["type"] != "json_invalid" else what)
    return corral_error_response(request.url.path, errors.InvalidInput("; ".join(problems)))


def _describe_not_json(request: Request) -> str:
    """FastAPI decodes no body whose content type is not JSON."""
    received = request.headers.get("content-type") or "none"
    return f"the body must be a JSON object with `Content-Type: application/json`; the content type was {received}"


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    messages = {
        404: f"the API has no path {path}",
        405: f"{path} does not support {request.method}",
    }
    return error_response(
        error.status_code, messages.get(error.status_code, str(error.detail)), "http_error", path=path
    )


async def _on_crash(request: Request, error: Exception) -> JSONResponse:
    # The server logs it with its traceback; the client gets no internals.
    return error_response(500, "internal error; see the frontend's log for details", "internal", path=request.url.path)


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(errors.CorralError, _on_corral_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_crash)
