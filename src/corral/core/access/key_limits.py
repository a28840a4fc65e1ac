"""The limits of an API key: its own, the cluster's defaults, and what is in force."""

from dataclasses import dataclass, field, fields
from enum import StrEnum

NO_LIMIT = 0
LIMIT_MAX = 10**15


class LimitKind(StrEnum):
    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    CONCURRENT_REQUESTS = "concurrent_requests"
    TOKENS_PER_DAY = "tokens_per_day"
    TOKENS_PER_MONTH = "tokens_per_month"


class Priority(StrEnum):
    """Decides the order in the queue while every replica is busy."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """As set on a key, or as defaults for all keys. None: the default applies. 0: no limit, whatever the default."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    priority: Priority | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsInForce:
    """0: no limit."""

    requests_per_minute: int = NO_LIMIT
    tokens_per_minute: int = NO_LIMIT
    concurrent_requests: int = NO_LIMIT
    tokens_per_day: int = NO_LIMIT
    tokens_per_month: int = NO_LIMIT
    priority: Priority = Priority.NORMAL
    counts_tokens: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        counts = bool(self.tokens_per_minute or self.tokens_per_day or self.tokens_per_month)
        object.__setattr__(self, "counts_tokens", counts)  # asked for every request

    @property
    def has_any(self) -> bool:
        return any(getattr(self, kind.value) for kind in LimitKind)

    @property
    def has_budget(self) -> bool:
        return bool(self.tokens_per_day or self.tokens_per_month)


NO_LIMITS, UNLIMITED = KeyLimits(), LimitsInForce()


def limits_in_force(own: KeyLimits, defaults: KeyLimits) -> LimitsInForce:
    chosen = {}
    for name in (each.name for each in fields(KeyLimits)):
        value = getattr(own, name)
        value = getattr(defaults, name) if value is None else value
        if value is not None:
            chosen[name] = value
    return LimitsInForce(**chosen)
