"""Web pages of other origins that call the gateway (`frontend/http/cors.py`)."""

from collections.abc import Iterable

from corral.frontend.gateway.proxied_request import ProxiedRequest
from corral.frontend.http.cors import HeaderPair, cors_headers, preflight_headers


def _lines(headers: Iterable[HeaderPair]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def cors_lines(origin: str) -> bytes:
    """The header lines of every answer."""
    return _lines(cors_headers(origin))


class PreflightRequest(ProxiedRequest):
    """A browser asks whether a page may send a request."""

    def start(self) -> None:
        asked = self.head.headers.get(b"access-control-request-headers")
        self._answer(200, (_lines(preflight_headers(asked)),), b"")
