"""Judges a new version of a backend against the previous one, for each model on each class of machines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from corral.core.backends.serving_figures import ServingFigures
from corral.core.errors import InvalidInput

MANY_ERRORS = 0.5
"""With this share of errors, fewer requests are enough for a verdict."""
MIB = 1 << 20

GOLDEN_PROMPTS = "golden_prompts"
"""The gate that sends requests of its own."""


class GateOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNJUDGED = "unjudged"
    """There is not enough to judge by. Whether it counts as passed is a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    max_error_increase: float = 0.02
    """By how much the share of failed requests may grow: 0.02 is two of a hundred."""
    min_errors: int = 2
    """Fewer errors than this fail no gate."""
    max_first_token_ratio: float = 1.5
    first_token_slack_ms: float = 30.0
    """A time to the first token that grew by no more than this is no matter of the version."""
    min_throughput_ratio: float = 0.67
    answer_slack_ms: float = 30.0
    """Answers that take no more than this longer, on average, are no matter of the version."""
    max_memory_ratio: float = 1.3
    memory_slack_bytes: int = 128 * MIB
    min_requests: int = 20
    """With fewer requests to either version a comparison is not judged."""
    look_back_s: float = 24 * 3600.0
    """Figures of the previous version count from this long before the wave began."""
    unjudged_passes: bool = True

    def check(self) -> None:
        """Raises InvalidInput that names what is out of range."""
        wrong = [
            *(f"{name} must be between 0 and 1" for name in _SHARES if not 0 <= getattr(self, name) <= 1),
            *(f"{name} must be between 1 and 1000" for name in _RATIOS if not 1 <= getattr(self, name) <= 1000),
            *(f"{name} must be between 1 and 1000000" for name in _COUNTS if not 1 <= getattr(self, name) <= 1_000_000),
        ]
        wrong += [
            f"{name} must be between 0 and 3600000" for name in _SLACKS_MS if not 0 <= getattr(self, name) <= 3_600_000
        ]
        if not 0 <= self.memory_slack_bytes <= 1 << 50:
            wrong.append("memory_slack_bytes must be between 0 and 2^50")
        if not 60 <= self.look_back_s <= 3 * 86_400:
            wrong.append("look_back_s must be between 60 and 259200 (three days, for which figures are kept)")
        if wrong:
            raise InvalidInput(f"the gate settings are invalid: {'; '.join(wrong)}")


_SHARES = ("max_error_increase", "min_throughput_ratio")
_RATIOS = ("max_first_token_ratio", "max_memory_ratio")
_COUNTS = ("min_errors", "min_requests")
_SLACKS_MS = ("first_token_slack_ms", "answer_slack_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    gate: str
    outcome: GateOutcome
    detail: str
    model: str = ""
    node_class: str = ""
    new: float | None = None
    old: float | None = None
    """What was compared: a share, milliseconds, tokens per second or bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSample:
    """What is known about one version that serves one model on one class of machines."""

    figures: ServingFigures = field(default_factory=ServingFigures)
    memory_bytes: int | None = None
    """The most that a process of it was seen to use."""
    exits: int = 0
    """Processes that ended although nobody stopped them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    model: str
    node_class: str
    new: VersionSample
    old: VersionSample | None = None
    """None: the class had no previous version."""
    at_the_same_time: bool = False
    """Whether the figures of the previous version are from the time of the rollout, not from before it."""
    ran: bool = True
    """Whether a process of the new version was seen."""
    memory_differs: str = ""
    """Why their memory cannot be compared, in words."""
    served_before: bool = True
    """Whether the previous version has served the model on this class. What it never served may fail with it too."""
    problems: tuple[str, ...] = ()
    """Processes of the new version that are down now, and loads of it that failed; in words."""
    unrelated: tuple[str, ...] = ()
    """The same, and exits, of revisions that the previous version has not served on this class."""

    @property
    def against(self) -> str:
        return "on nodes with the previous version" if self.at_the_same_time else "before"


def pick_baseline(since: ServingFigures, before: ServingFigures, settings: GateSettings) -> tuple[ServingFigures, bool]:
    """The figures of the previous version to compare with, and whether they are from the time of the rollout. Those are
    preferred where there are enough: what makes all machines slow at that time is no matter of the version."""
    enough = since.requests >= settings.min_requests
    return (since, True) if enough else (before + since, False)


def judge_versions(compared: Iterable[Comparison], settings: GateSettings) -> list[GateVerdict]:
    """The verdicts of all gates that need no requests of their own, in the order of models and classes."""
    return [
        verdict
        for one in sorted(compared, key=lambda each: (each.model, each.node_class))
        for verdict in _judge(one, settings)
    ]


def gates_pass(verdicts: Iterable[GateVerdict], settings: GateSettings) -> bool:
    accepted = {GateOutcome.PASSED, GateOutcome.UNJUDGED} if settings.unjudged_passes else {GateOutcome.PASSED}
    return all(verdict.outcome in accepted for verdict in verdicts)


def _judge(one: Comparison, settings: GateSettings) -> Iterator[GateVerdict]:
    gates = (_stable, _errors, _first_token, _throughput, _memory) if one.model else (_stable,)
    for gate in gates:
        outcome, detail, new, old = gate(one, settings)
        yield GateVerdict(
            gate=gate.__name__.removeprefix("_"),
            outcome=outcome,
            detail=detail,
            model=one.model,
            node_class=one.node_class,
            new=new,
            old=old,
        )


_Judged = tuple[GateOutcome, str, float | None, float | None]


def _stable(one: Comparison, settings: GateSettings) -> _Judged:
    exits = one.new.exits
    if one.problems or exits:
        parts = [describe_exits(exits)] if exits else []
        return GateOutcome.FAILED, "; ".join((*parts, *one.problems)), float(exits), None
    detail = "no process of the new version " + ("ended unexpectedly" if one.ran else "runs on these machines")
    if one.unrelated:
        detail = (
            f"not counted, because the previous version has not served it on such machines: {'; '.join(one.unrelated)}"
        )
    return (GateOutcome.PASSED, detail, 0.0, None) if one.ran else (GateOutcome.UNJUDGED, detail, None, None)


def _errors(one: Comparison, settings: GateSettings) -> _Judged:
    new, old = one.new.figures, one.old.figures if one.old is not None else ServingFigures()
    rate, before = new.error_rate, old.error_rate
    if rate is None:
        return GateOutcome.UNJUDGED, "the new version has had no requests", None, before
    if not one.served_before:
        return GateOutcome.UNJUDGED, "the previous version has not served it on such machines", rate, None
    mostly = rate > MANY_ERRORS and new.errors >= settings.min_errors
    if new.requests < settings.min_requests and not mostly:
        return GateOutcome.UNJUDGED, _too_few("requests", new.requests, settings), rate, before
    against = f"{_percent(before)} {one.against}" if before is not None else "none known before"
    allowed = (before or 0.0) + settings.max_error_increase
    detail = (
        f"{new.errors} of {new.requests} requests failed ({_percent(rate)}) against {against}"
        f" (at most {_percent(allowed)})"
    )
    failed = rate > allowed and new.errors >= settings.min_errors
    return GateOutcome.FAILED if failed else GateOutcome.PASSED, detail, rate, before


def _first_token(one: Comparison, settings: GateSettings) -> _Judged:
    new, old = one.new.figures, one.old.figures if one.old is not None else ServingFigures()
    new_s, old_s = new.first_token_s(), old.first_token_s()
    new_ms, old_ms = _ms(new_s), _ms(old_s)
    missing = _missing("streams", new.streams, old.streams, settings)
    if missing or new_ms is None or old_ms is None:
        return GateOutcome.UNJUDGED, missing, new_ms, old_ms
    ratio = new_ms / old_ms if old_ms else 1.0
    failed = ratio > settings.max_first_token_ratio and new_ms - old_ms > settings.first_token_slack_ms
    detail = (
        f"time to first token {new_ms:.0f} ms against {old_ms:.0f} ms {one.against} ({ratio:.1f} times;"
        f" at most {settings.max_first_token_ratio:g})"
    )
    return GateOutcome.FAILED if failed else GateOutcome.PASSED, detail, new_ms, old_ms


def _throughput(one: Comparison, settings: GateSettings) -> _Judged:
    new, old = one.new.figures, one.old.figures if one.old is not None else ServingFigures()
    speed, before = new.tokens_per_s, old.tokens_per_s
    missing = _missing("requests", new.requests, old.requests, settings)
    if missing:
        return GateOutcome.UNJUDGED, missing, speed, before
    if speed is None or before is None:
        which = "new" if speed is None else "previous"
        return GateOutcome.UNJUDGED, f"answers of the {which} version have no counted tokens", speed, before
    ratio = speed / before
    detail = (
        f"{speed:.1f} tokens/s per request against {before:.1f} {one.against} ({ratio:.2f} times;"
        f" at least {settings.min_throughput_ratio:g})"
    )
    longer_ms = new.tokens_out * (1 / speed - 1 / before) * 1000 / new.requests
    failed = ratio < settings.min_throughput_ratio and longer_ms > settings.answer_slack_ms
    return GateOutcome.FAILED if failed else GateOutcome.PASSED, detail, speed, before


def _memory(one: Comparison, settings: GateSettings) -> _Judged:
    new, old = one.new.memory_bytes, one.old.memory_bytes if one.old is not None else None
    if one.memory_differs:
        return GateOutcome.UNJUDGED, one.memory_differs, new, old
    if new is None or not old:
        which = "new" if new is None else "previous"
        return GateOutcome.UNJUDGED, f"the memory of the {which} version is not known", new, old
    ratio = new / old
    failed = ratio > settings.max_memory_ratio and new - old > settings.memory_slack_bytes
    detail = (
        f"{new / MIB:.0f} MiB of memory against {old / MIB:.0f} MiB before ({ratio:.1f} times;"
        f" at most {settings.max_memory_ratio:g})"
    )
    return GateOutcome.FAILED if failed else GateOutcome.PASSED, detail, new, old


def _missing(what: str, new: int, old: int, settings: GateSettings) -> str:
    """Why there is no comparison; empty if there is one."""
    if new < settings.min_requests:
        return _too_few(what, new, settings)
    if old < settings.min_requests:
        return (
            f"only {old} {what} of the previous version on such machines are known (at least {settings.min_requests})"
        )
    return ""


def _too_few(what: str, count: int, settings: GateSettings) -> str:
    return f"the new version has had only {count} {what} (at least {settings.min_requests} to judge it)"


def describe_exits(count: int) -> str:
    return f"processes of the new version ended unexpectedly {'once' if count == 1 else f'{count} times'}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
