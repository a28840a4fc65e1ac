"""Server-sent events for the command line: read in a thread, so that whoever waits can also do something else."""

import http.client
import json
import queue
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from corral.system.http_json import Unreachable, error_from

SILENCE_S = 40.0
"""The server pings every 15 s: after two missed pings and a little the line is dead, whatever the socket says."""
CONNECT_S = 10.0
QUEUE_MOST = 1000


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: Any


class EventStream:
    """`with EventStream(url, bearer=key) as events: events.get(within_s=1.0)`."""

    def __init__(self, url: str, *, bearer: str | None) -> None:
        self._url = url
        self._bearer = bearer
        self._events: queue.Queue[ServerEvent | Exception] = queue.Queue(QUEUE_MOST)
        self._closed = False
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        parts = urlsplit(self._url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_S)
        headers = {"Accept": "text/event-stream"} | (
            {"Authorization": f"Bearer {self._bearer}"} if self._bearer else {}
        )
        try:
            self._connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
            line: socket.socket = self._connection.sock
            self._socket = line  # the connection lets go of it where the answer says `Connection: close`
            response = self._connection.getresponse()
            if response.status != 200:
                raise error_from(self._url, response.status, response.read())
            line.settimeout(SILENCE_S)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable(f"cannot follow {parts.scheme}://{parts.netloc}: {error}") from error
        threading.Thread(target=self._read, args=(response,), daemon=True, name="events").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(2)
        self._connection.close()

    def get(self, *, within_s: float) -> ServerEvent | None:
        """The next event; None when there was none in time. Raises Unreachable when the line is lost."""
        try:
            found = self._events.get(timeout=within_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise Unreachable(f"the line to {self._url.partition('?')[0]} was lost: {found}") from found
        return found

    def _read(self, response: http.client.HTTPResponse) -> None:
        name, data = "", b""
        try:
            while not self._closed:
                line = response.readline()
                if not line:
                    raise ConnectionError("the server ended it")
                field, _, value = line.rstrip(b"\r\n").partition(b":")
                value = value.removeprefix(b" ")
                if field == b"event":
                    name = value.decode()
                elif field == b"data":
                    data += value
                elif not line.strip() and data:
                    self._events.put_nowait(ServerEvent(name, json.loads(data)))
                    name, data = "", b""
        except (OSError, ValueError, AttributeError, http.client.HTTPException, queue.Full) as error:
            with suppress(queue.Full):
                self._events.put_nowait(error)
