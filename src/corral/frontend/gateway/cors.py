"""Lets web pages of other origins call the client APIs, where a setting allows it.

Cookies are never accepted from them: a page must have a key of its own."""

from corral.frontend.gateway.proxied_request import ProxiedRequest

_LIMITS = [f"{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")]
_ANTHROPIC_LIMITS = [f"{of}-{what}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")]
EXPOSED = ", ".join(
    (
        "x-request-id, retry-after, x-should-retry, x-corral-node, x-corral-queue-position, x-corral-model",
        "x-corral-fallback",
        *(f"x-ratelimit-{limit}" for limit in _LIMITS),
        *(f"anthropic-ratelimit-{limit}" for limit in _ANTHROPIC_LIMITS),
    )
)
"""A browser hides all other headers of an answer from the page. `*` would not hold for requests with a key."""
PREFLIGHT_VALID_S = 600


def cors_lines(origin: str) -> bytes:
    """The header lines of every answer."""
    if not origin:
        return b""
    return f"access-control-allow-origin: {origin}\r\naccess-control-expose-headers: {EXPOSED}\r\n".encode()


class PreflightRequest(ProxiedRequest):
    """A browser asks whether a page may send a request. It sends no key with this."""

    def start(self) -> None:
        asked = self.head.headers.get(b"access-control-request-headers", b"authorization, content-type")
        lines = (
            b"access-control-allow-methods: GET, POST, DELETE, OPTIONS\r\n",
            b"access-control-allow-headers: %b\r\n" % asked,
            b"access-control-max-age: %d\r\n" % PREFLIGHT_VALID_S,
        )
        self._answer(200, lines, b"")
