"""How many requests an engine takes: what it says about its slots and context, and how its own queue behaves.

An engine with a known number of slots gets that many requests and a few ahead, so that a freed slot never waits for the
network. Of an engine that does not say how many it takes, the limit is learnt from its queue: a queue that makes up
most of the time to the first token shows that the engine is full, and further requests wait at the gateway, where
API keys take turns.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

SLOTS_MOST = 100_000
CONTEXT_MOST = 1 << 31
AHEAD_SHARE = 8
QUEUE_SHARE = 0.5
"""The share of the time to the first token that a request may spend in the engine's queue."""
GROWTH = 1.25
LIMIT_LEAST = 4
CHANGE_SHARE = 0.1
"""Smaller corrections downwards are not worth a change of all route tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapacity:
    """What a running engine takes. None is unknown."""

    slots: int | None = None
    """Requests that it processes at the same time, as it says."""
    context: int | None = None
    """Tokens of one conversation."""
    limit: int | None = None
    """Requests that may be open at it, those in its own queue included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """An engine's own figures at one moment."""

    running: int
    waiting: int
    queue_s: float | None = None
    """How long requests waited in its queue: the mean of those that began since the last look."""
    first_token_s: float | None = None
    """Time to the first token, the wait included: the mean since the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFamily:
    """The names of an engine's metrics, and where it tells its slots and context."""

    prefix: str
    running: str
    waiting: str
    queue: str = ""
    """A histogram; empty if the engine has none."""
    first_token: str = ""
    facts: tuple[str, ...] = ()
    """Asked in this order, until slots and context are known."""


LLAMA_CPP = EngineFamily(
    prefix="llamacpp:",
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    facts=("/props", "/slots"),
)
VLLM = EngineFamily(
    prefix="vllm:",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    queue="vllm:request_queue_time_seconds",
    first_token="vllm:time_to_first_token_seconds",
    facts=("/v1/models",),
)
SGLANG = EngineFamily(
    prefix="sglang:",
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    queue="sglang:queue_time_seconds",
    first_token="sglang:time_to_first_token_seconds",
    facts=("/get_server_info", "/v1/models"),
)
FAMILIES = (LLAMA_CPP, VLLM, SGLANG)


def find_family(metrics: Mapping[str, float]) -> EngineFamily | None:
    """By the prefix of its metrics, so that an engine from any gallery is recognised."""
    return next((family for family in FAMILIES if any(name.startswith(family.prefix) for name in metrics)), None)


def read_load(family: EngineFamily, metrics: Mapping[str, float], before: Mapping[str, float]) -> EngineLoad | None:
    """`before`: the metrics at the last look; empty at the first. None if the engine does not count its requests."""
    running, waiting = _count(metrics.get(family.running)), _count(metrics.get(family.waiting))
    if running is None or waiting is None:
        return None
    return EngineLoad(
        running=running,
        waiting=waiting,
        queue_s=_mean_since(family.queue, metrics, before),
        first_token_s=_mean_since(family.first_token, metrics, before),
    )


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and math.isfinite(value) and 0 <= value <= SLOTS_MOST else None


def _mean_since(name: str, metrics: Mapping[str, float], before: Mapping[str, float]) -> float | None:
    """Of a histogram; None when nothing was added, or when the engine was restarted."""
    total, count = f"{name}_sum", f"{name}_count"
    if not name or total not in metrics or count not in metrics:
        return None
    added = metrics[count] - before.get(count, 0.0)
    spent_s = metrics[total] - before.get(total, 0.0)
    return spent_s / added if added > 0 and spent_s >= 0 else None


def queue_ahead(slots: int) -> int:
    """Requests that may wait at an engine with this many slots, so that a freed slot has its next request at once."""
    return max(1, slots // AHEAD_SHARE)


def limit_of_slots(slots: int) -> int:
    """How many requests may be open at an engine with this many slots."""
    return min(slots + queue_ahead(slots), SLOTS_MOST)


def plan_limit(before: int | None, load: EngineLoad, *, slots: int | None) -> int | None:
    """How many requests may be open at the engine from now on. None: no limit is known, and none was needed yet."""
    ceiling = limit_of_slots(slots) if slots else None
    limit = before if before is not None else ceiling
    if _is_overloaded(load):
        current = limit if limit is not None else min(load.running + load.waiting, SLOTS_MOST)
        # One look may be misleading, so a step halves the limit at most.
        lower = max(limit_of_slots(load.running), current // 2, LIMIT_LEAST)
        if lower > current * (1 - CHANGE_SHARE):
            return limit
        return lower
    if limit is None or limit == ceiling or load.waiting:
        return limit
    if load.running >= limit - queue_ahead(limit):  # the limit is what keeps requests away, and the engine has room
        grown = math.ceil(limit * GROWTH)
        return min(grown, ceiling if ceiling is not None else SLOTS_MOST)
    return limit


def _is_overloaded(load: EngineLoad) -> bool:
    """Whether the queue at the engine is long, and long for the requests in it: a short wait costs nothing."""
    if load.running == 0 or load.waiting <= queue_ahead(load.running):
        return False
    if load.queue_s is None or load.first_token_s is None:
        return load.waiting >= load.running
    return load.queue_s >= QUEUE_SHARE * load.first_token_s


def open_limit(configured: int | None, engine: EngineCapacity | None) -> int | None:
    """How many requests a replica may have open: what its model's configuration says, and what its engine takes."""
    known = [number for number in (configured, engine.limit if engine is not None else None) if number]
    return min(known) if known else None


def check_engine(engine: EngineCapacity) -> None:
    """Raises ValueError for figures that no engine has."""
    for value, most in ((engine.slots, SLOTS_MOST), (engine.limit, SLOTS_MOST), (engine.context, CONTEXT_MOST)):
        if value is not None and not 1 <= value <= most:
            raise ValueError("an engine's slots, context or limit is out of range")
