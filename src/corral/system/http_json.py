"""JSON over HTTP for the command line and `up`: a process that lives for half a second needs no larger client."""

import asyncio
import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from corral.core.errors import (
    Conflict,
    CorralError,
    Forbidden,
    InvalidInput,
    NotFound,
    Unauthenticated,
    Unavailable,
)

_ERRORS: dict[int, type[CorralError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidInput,
}


class Unreachable(Unavailable):
    """Nobody answered at all."""

    code = "unreachable"


class Declined(Unavailable):
    """Somebody answered: not now, or not without something else that cannot be reached from there."""


_ERRORS |= {429: Declined, 503: Declined}


def cause_of(error: Exception) -> str:
    """For people: without the number a system has for it, or the words of who speaks something else."""
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return "what answers there does not speak HTTP"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def call_json(
    method: str,
    url: str,
    *,
    bearer: str | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    within_s: float = 30.0,
) -> Any:
    """The decoded answer (None when empty); an answer that is an error raises it, in the server's own words."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    sent = {"Accept": "application/json", **(headers or {})}
    if bearer:
        sent["Authorization"] = f"Bearer {bearer}"
    content = None
    if body is not None:
        content = json.dumps(body).encode()
        sent["Content-Type"] = "application/json"
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    connection = kind(parts.hostname or "", parts.port, timeout=within_s)
    try:
        connection.request(method, target, body=content, headers=sent)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"cannot reach {parts.scheme}://{parts.netloc}: {cause_of(error)}") from error
    finally:
        connection.close()
    if response.status >= 300:
        raise error_from(url, response.status, text)
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise _stranger(url, response.status) from None


def error_from(url: str, status: int, text: bytes) -> CorralError:
    """An answer that is an error, in the server's own words."""
    try:
        answer = json.loads(text) if text.strip() else None
    except ValueError:
        return _stranger(url, status)
    return error_of(status, answer)


def _stranger(url: str, status: int) -> Unavailable:
    return Unavailable(f"{url} does not answer like Corral (status {status}); check the address")


def error_of(status: int, answer: Any) -> CorralError:
    """What an answer that is an error means, in the server's own words."""
    return _ERRORS.get(status, CorralError)(_message(answer, status))


def _message(answer: Any, status: int) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return str(error.get("message", f"status {status}"))
    return str(error or f"the server answered with status {status}")


async def get_json(url: str, *, bearer: str | None = None, within_s: float = 5.0) -> Any:
    return await asyncio.to_thread(call_json, "GET", url, bearer=bearer, within_s=within_s)


def read_server_time(url: str, *, within_s: float = 5.0) -> str:
    """The `Date` header of whoever answers at `url`."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=within_s)
    try:
        connection.request("HEAD", "/healthz")
        return connection.getresponse().getheader("Date") or ""
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"cannot reach {url}: {cause_of(error)}") from error
    finally:
        connection.close()
