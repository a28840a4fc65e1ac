"""The headers with which web pages of other origins may call the client APIs, where a setting allows it.

Cookies are never accepted from them: a page must have a key of its own."""

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

HeaderPair = tuple[bytes, bytes]


def cors_headers(origin: str) -> tuple[HeaderPair, ...]:
    """Of every answer."""
    if not origin:
        return ()
    return (
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-expose-headers", EXPOSED.encode()),
    )


def preflight_headers(requested: bytes | None) -> tuple[HeaderPair, ...]:
    """Besides these, where a browser asks whether a page may send a request. It sends no key with this. `requested`:
    the headers that the page wants to send."""
    return (
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", requested or b"authorization, content-type"),
        (b"access-control-max-age", b"%d" % PREFLIGHT_VALID_S),
    )
