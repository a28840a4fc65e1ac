"""Server-sent events for the command line, read as they come."""

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from corral.core.errors import OutcomeUnknown
from corral.system.http_json import Unreachable, cause_of

ANSWER_WITHIN_S = 900.0
"""The longest silence: a model may read a very long prompt before its first token."""


class EventStream:
    """One request. `status` and `headers` are there at once; iterating gives the `data` of each event."""

    def __init__(
        self,
        url: str,
        *,
        bearer: str | None,
        body: Any,
        headers: Mapping[str, str] | None = None,
        within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        parts = urlsplit(url)
        self._place = f"{parts.scheme}://{parts.netloc}"
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        sent = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json", **(headers or {})}
        if bearer:
            sent["Authorization"] = f"Bearer {bearer}"
        self._connection = kind(parts.hostname or "", parts.port, timeout=within_s)
        try:
            self._connection.request("POST", parts.path, body=json.dumps(body).encode(), headers=sent)
            self._response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable(f"cannot reach {self._place}: {cause_of(error)}") from error
        except BaseException:
            self._connection.close()
            raise
        self.status = self._response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in self._response.getheaders()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(self) -> bytes:
        """The whole answer, where it is no stream."""
        try:
            return self._response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def __iter__(self) -> Iterator[str]:
        lines: list[str] = []
        try:
            for raw in self._response:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if line.startswith("data:"):
                    lines.append(line.removeprefix("data:").removeprefix(" "))
                elif not line and lines:
                    yield "\n".join(lines)
                    lines = []
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if lines:
            yield "\n".join(lines)

    def _broken(self, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(f"the answer of {self._place} broke off: {cause_of(error)}")
