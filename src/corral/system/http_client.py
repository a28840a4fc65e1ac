"""The blocking HTTP client of the command line and of `corral up`: JSON calls and server-sent events.

It uses the standard library's client, because most commands live for half a second and must start fast.
"""

import asyncio
import http.client
import json
import queue
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from corral.core.errors import (
    Conflict,
    CorralError,
    Forbidden,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Unauthenticated,
    Unavailable,
)

QUEUE_LIMIT = 1000


class Unreachable(Unavailable):
    """No server answered."""

    code = "unreachable"


class Declined(Unavailable):
    """The server answered that it cannot serve the request now, or that something it needs is unavailable."""


_ERRORS: dict[int, type[CorralError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidInput,
    429: Declined,
    503: Declined,
}


def cause_of(error: Exception) -> str:
    """The cause of a failed connection in words, without the system's error number."""
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return "the server does not speak HTTP"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _connection(parts: SplitResult, *, within_s: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=within_s)


def _target(parts: SplitResult) -> str:
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _headers(accept: str, bearer: str | None, body: Any, more: Mapping[str, str] | None) -> dict[str, str]:
    headers = {"Accept": accept, **(more or {})}
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    return headers


def _encode(body: Any) -> bytes | None:
    return json.dumps(body).encode() if body is not None else None


def call_json(
    method: str,
    url: str,
    *,
    bearer: str | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    within_s: float = 30.0,
) -> Any:
    """Sends a request and returns the decoded answer (None when empty). Raises an error answer as a `CorralError`."""
    parts = urlsplit(url)
    connection = _connection(parts, within_s=within_s)
    try:
        sent = _headers("application/json", bearer, body, headers)
        connection.request(method, _target(parts), body=_encode(body), headers=sent)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"cannot reach {parts.scheme}://{parts.netloc}: {cause_of(error)}") from error
    finally:
        connection.close()
    if response.status >= 300:
        raise _read_error(url, response.status, text)
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise _not_corral(url, response.status) from None


async def get_json(url: str, *, bearer: str | None = None, within_s: float = 5.0) -> Any:
    return await asyncio.to_thread(call_json, "GET", url, bearer=bearer, within_s=within_s)


def read_server_time(url: str, *, within_s: float = 5.0) -> str:
    """The `Date` header of the server at `url`."""
    parts = urlsplit(url)
    connection = _connection(parts, within_s=within_s)
    try:
        connection.request("HEAD", "/healthz")
        return connection.getresponse().getheader("Date") or ""
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"cannot reach {url}: {cause_of(error)}") from error
    finally:
        connection.close()


def error_of(status: int, answer: Any) -> CorralError:
    """The error that a decoded error answer stands for, with the server's message."""
    return _ERRORS.get(status, CorralError)(_message(answer, status))


def _message(answer: Any, status: int) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return str(error.get("message", f"status {status}"))
    return str(error or f"the server answered with status {status}")


def _read_error(url: str, status: int, text: bytes) -> CorralError:
    try:
        answer = json.loads(text) if text.strip() else None
    except ValueError:
        return _not_corral(url, status)
    return error_of(status, answer)


def _not_corral(url: str, status: int) -> Unavailable:
    return Unavailable(f"{url} does not answer like a Corral frontend (status {status}); check the address")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: str

    def decode(self) -> Any:
        """The data as JSON. Raises ValueError."""
        return json.loads(self.data)


class EventStream:
    """One request whose answer is a stream of server-sent events; a request with a body is a POST.

    `status` and `headers` are known once it is constructed. Read the events either by iterating, or with `get`, which
    waits for a limited time: a thread then reads them into a queue.
    """

    def __init__(
        self,
        url: str,
        *,
        bearer: str | None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        answer_within_s: float,
        silence_s: float,
    ) -> None:
        """`silence_s`: the longest time without a byte before the stream counts as broken."""
        parts = urlsplit(url)
        self._url = url
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._queue: queue.Queue[ServerEvent | Exception] = queue.Queue(QUEUE_LIMIT)
        self._reader: threading.Thread | None = None
        self._connection = _connection(parts, within_s=answer_within_s)
        try:
            sent = _headers("text/event-stream, application/json", bearer, body, headers)
            method = "GET" if body is None else "POST"
            self._connection.request(method, _target(parts), body=_encode(body), headers=sent)
            # Kept here: the connection drops its socket when the answer says `Connection: close`.
            self._socket: socket.socket = self._connection.sock
            self._response = self._connection.getresponse()
            self._socket.settimeout(silence_s)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable(f"cannot reach {self._origin}: {cause_of(error)}") from error
        except BaseException:  # an interrupt must not leave the connection open
            self._connection.close()
            raise
        self.status = self._response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in self._response.getheaders()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the read of the reader thread
        self._connection.close()
        self._response.close()

    def check_status(self) -> None:
        """Raises the server's error when the answer is one."""
        if self.status >= 300:
            raise _read_error(self._url, self.status, self.read())

    def read(self) -> bytes:
        """The whole body, of an answer that is not a stream."""
        try:
            return self._response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def __iter__(self) -> Iterator[ServerEvent]:
        name, lines = "", list[str]()
        try:
            for raw in self._response:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.removeprefix(" ")
                elif field == "data":
                    lines.append(value.removeprefix(" "))
                elif not line and lines:
                    yield ServerEvent(name, "\n".join(lines))
                    name, lines = "", []
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if lines:
            yield ServerEvent(name, "\n".join(lines))

    def get(self, *, within_s: float) -> ServerEvent | None:
        """The next event, or None when there was none in time. Raises Unreachable when the stream ended."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read_events, daemon=True, name="events")
            self._reader.start()
        try:
            found = self._queue.get(timeout=within_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise Unreachable(f"lost the event stream of {self._origin}: {found}") from found
        return found

    def _read_events(self) -> None:
        problem: Exception = ConnectionError("the server closed it")
        try:
            for event in self:
                self._queue.put_nowait(event)
        # AttributeError and ValueError: the stream was closed during the read.
        except (CorralError, AttributeError, ValueError, queue.Full) as error:
            problem = error
        with suppress(queue.Full):
            self._queue.put_nowait(problem)

    def _broken(self, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(f"the answer of {self._origin} was cut off: {cause_of(error)}")
