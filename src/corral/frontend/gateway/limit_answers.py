"""What clients are told about the limits of their key: with every answer, and when a request does not fit."""

import math
from functools import lru_cache

from corral.core.access.key_limits import LimitKind, LimitsInForce
from corral.core.access.key_meter import WINDOW_S, KeyMeter, Refusal
from corral.frontend.gateway.error_responses import ErrorResponse

_UNITS = {
    LimitKind.REQUESTS_PER_MINUTE: "requests per minute",
    LimitKind.TOKENS_PER_MINUTE: "tokens per minute",
    LimitKind.CONCURRENT_REQUESTS: "concurrent requests",
    LimitKind.TOKENS_PER_DAY: "tokens per day (UTC)",
    LimitKind.TOKENS_PER_MONTH: "tokens per month (UTC)",
}
_BUDGETS = (LimitKind.TOKENS_PER_DAY, LimitKind.TOKENS_PER_MONTH)
RATE_LIMITED = "rate_limit_exceeded"
OVER_BUDGET = "insufficient_quota"
"""OpenAI's code for it: its clients know that retrying soon is of no use."""


Allowance = tuple[int, int, int, int, int, int]
"""What the limits per minute still allow: limit, left and seconds until it resets, for requests and then for tokens. A
limit of 0 is none. A plain tuple, because it is made for every request."""


def allowance_of(limits: LimitsInForce, meter: KeyMeter) -> Allowance:
    """After a request was admitted: what it used leaves the window a minute later."""
    requests_left, tokens_left = meter.left(limits)
    return limits.requests_per_minute, requests_left, WINDOW_S, limits.tokens_per_minute, tokens_left, WINDOW_S


def allowance_after(refusal: Refusal, limits: LimitsInForce, meter: KeyMeter) -> Allowance:
    requests, requests_left, requests_s, tokens, tokens_left, tokens_s = allowance_of(limits, meter)
    wait_s = max(1, math.ceil(refusal.wait_s))
    if refusal.kind is LimitKind.REQUESTS_PER_MINUTE:
        requests_s = wait_s
    if refusal.kind is LimitKind.TOKENS_PER_MINUTE:
        tokens_s = wait_s
    return requests, requests_left, requests_s, tokens, tokens_left, tokens_s


@lru_cache(maxsize=1024)
def _form(what: bytes, limit: int) -> bytes:
    """The lines but for what is left and when it resets."""
    lines = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%ds\r\n"
    return lines % (what, limit, what, what)


def openai_lines(allowance: Allowance) -> bytes:
    requests, requests_left, requests_s, tokens, tokens_left, tokens_s = allowance
    lines = _form(b"requests", requests) % (requests_left, requests_s) if requests else b""
    return lines + _form(b"tokens", tokens) % (tokens_left, tokens_s) if tokens else lines


def over_limit(key_name: str, refusal: Refusal, lines: bytes) -> ErrorResponse:
    """`lines`: further header lines, in the client's protocol."""
    wait_s = max(1, math.ceil(refusal.wait_s))
    is_budget = refusal.kind in _BUDGETS
    what = f"{refusal.limit:,} {_UNITS[refusal.kind]}"
    state = f"{refusal.used:,} open" if refusal.kind is LimitKind.CONCURRENT_REQUESTS else f"{refusal.used:,} used"
    message = (
        f"the key {key_name!r} is limited to {what}: {state}, {refusal.left:,} left, too few for this request;"
        f" retry in {wait_s} s"
    )
    limit = {
        "name": refusal.kind.value,
        "limit": refusal.limit,
        "used": refusal.used,
        "remaining": refusal.left,
        "resets_in_s": wait_s,
    }
    return ErrorResponse(
        429,
        message,
        code=OVER_BUDGET if is_budget else RATE_LIMITED,
        retry_after_s=wait_s,
        more={"limit": limit},
        # Official clients retry otherwise, which cannot help before the day ends.
        lines=lines + b"x-should-retry: false\r\n" if is_budget else lines,
    )
