"""Listens to `/api/events` as a page does."""

import contextlib
import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.programs import Admin
from harness.waiting import wait_until


@dataclass(frozen=True)
class Heard:
    name: str
    data: Any
    at_s: float


class Listener:
    def __init__(self, admin: Admin, *kinds: str, last_id: str = "") -> None:
        self.events: list[Heard] = []
        self.last_id = last_id
        parts = urlsplit(admin.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        headers = {"Authorization": f"Bearer {admin.key}"} | ({"Last-Event-ID": last_id} if last_id else {})
        self._connection.request("GET", f"/api/events?kinds={','.join(kinds)}", headers=headers)
        self._socket = self._connection.sock  # the connection may hand it over to the response
        response = self._connection.getresponse()
        assert response.status == 200, response.read()
        self._response = response
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        with contextlib.suppress(OSError, http.client.HTTPException):
            while line := self._response.readline():
                text = line.decode().rstrip("\n")
                if text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
                    continue
                if "id" in fields:
                    self.last_id = fields["id"]
                if "data" in fields:
                    self.events.append(Heard(fields["event"], json.loads(fields["data"]), time.monotonic()))
                fields = {}

    def things(self, kind: str) -> list[dict[str, Any]]:
        return [thing for event in list(self.events) if event.name == kind for thing in event.data["changed"]]

    def wait_for(self, kind: str, fits: Any, *, what: str, within_s: float = 30.0) -> dict[str, Any]:
        return wait_until(
            lambda: next((thing for thing in self.things(kind) if fits(thing)), None), what=what, within_s=within_s
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._response.close()
        self._connection.close()
