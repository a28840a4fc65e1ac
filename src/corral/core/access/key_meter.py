"""What one key has used lately, on all frontends, and whether another request fits its limits.

Every frontend process has a meter for each limited key that it serves. It counts its own requests at once and those of
the other processes as it hears of them, so a decision reads memory only. Times come from a clock that never jumps.

Most requests fit with much to spare. So what the limits still allow is computed about once a second, and a request only
takes from that; `catch_up` counts what was taken."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple, Self

from corral.core.access.key_limits import LIMIT_MAX, UNLIMITED, LimitKind, LimitsInForce
from corral.core.access.token_estimate import OUTPUT_TOKENS

WINDOW_S = 60
_COUNTED_S = WINDOW_S + 1
"""Uses are kept by whole seconds. One more than the window, so that no 60 seconds ever hold more than the limit."""
OPEN_RETRY_S = 1.0
SETTLED_AFTER_S = 10
"""After this time without a request, the store's sums contain everything that the key used."""
_AVERAGE_OVER = 8


class Refusal(NamedTuple):
    """The limit that a request does not fit."""

    kind: LimitKind
    limit: int
    used: int
    wait_s: float
    """When it may fit."""

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(slots=True)
class _Second:
    second: int
    requests: int = 0
    tokens: int = 0
    own_requests: int = 0
    own_tokens: int = 0


class OwnUse(NamedTuple):
    """What this process has counted since it started. It only grows, but for corrected estimates, so that a receiver
    that missed a message catches up with the next."""

    requests: int = 0
    tokens: int = 0
    spent: int = 0


@dataclass(slots=True)
class Periods:
    """The day and the month of the store's clock, and when they end on ours."""

    day: int = 0
    day_ends_s: float = 0.0
    month_ends_s: float = 0.0


MeteredRequest = tuple["KeyMeter", int, float, int]
"""A request that was admitted: its meter, the tokens that were counted in advance, when it began, and on which day. A
plain tuple, because it is made for every request."""
METER: Final = 0
TOKENS: Final = 1
BEGAN_S: Final = 2
DAY: Final = 3
_TOKENS_OF, _BEGAN_OF, _DAY_OF = itemgetter(TOKENS), itemgetter(BEGAN_S), itemgetter(DAY)


class KeyMeter:
    __slots__ = (
        "_learned", "_learned_until_s", "_left_requests", "_left_requests_before", "_left_tokens",
        "_left_tokens_before", "_open_max", "_quick_limits", "_quick_until_s", "_seconds", "average_output",
        "day_tokens", "key_id", "month_tokens", "open", "open_elsewhere", "own_requests", "own_spent", "own_tokens",
        "recent_requests", "recent_tokens", "requests", "tokens", "unpublished",
    )  # fmt: skip

    def __init__(self, key_id: str, own: OwnUse | None = None) -> None:
        """`own`: what this process counted before, if it had a meter for the key."""
        self.key_id = key_id
        self._seconds: deque[_Second] = deque()
        self._learned = (0, 0)
        """Requests and tokens within the window that one process reported of others, which were not heard yet."""
        self._learned_until_s = 0.0
        self.requests = 0
        """Within the window, as `tokens`. These and all that follow are as of the last `catch_up`."""
        self.tokens = 0
        self.open = 0
        """At this process."""
        self.open_elsewhere = 0
        self.day_tokens = 0
        self.month_tokens = 0
        self.own_requests, self.own_tokens, self.own_spent = own or OwnUse()
        self.recent_requests = self.recent_tokens = 0
        """Of this process alone, within the window."""
        self.average_output = float(OUTPUT_TOKENS)
        self.unpublished = False
        # What requests may take without another look at the limits, until the current second ends.
        self._quick_limits = UNLIMITED
        self._quick_until_s = 0.0
        self._left_requests = self._left_requests_before = 0
        self._left_tokens = self._left_tokens_before = 0
        self._open_max = 0

    @property
    def own(self) -> OwnUse:
        self.catch_up()
        return OwnUse(self.own_requests, self.own_tokens, self.own_spent)

    def left(self, limits: LimitsInForce) -> tuple[int, int]:
        """The requests and tokens that the limits per minute still allow."""
        requests = limits.requests_per_minute - self.requests - (self._left_requests_before - self._left_requests)
        tokens = limits.tokens_per_minute - self.tokens - (self._left_tokens_before - self._left_tokens)
        return max(0, requests), max(0, tokens)

    def admit(
        self, limits: LimitsInForce, tokens: int, now_s: float, periods: Periods
    ) -> tuple[Self, int, float, int] | Refusal:
        """Counts a request, if it fits."""
        left = self._left_tokens - tokens
        if (
            left >= 0
            and self._left_requests > 0
            and self.open < self._open_max
            and now_s < self._quick_until_s
            and limits is self._quick_limits
        ):
            self._left_tokens = left
            self._left_requests -= 1
            self.open += 1
            return (self, tokens, now_s, periods.day)
        refusal = self.refuses(limits, tokens, now_s, periods)
        if refusal is not None:
            return refusal
        metered = self.begin(tokens, now_s, periods)
        self._quick_limits = limits
        self._quick_until_s = float(self._seconds[-1].second + 1)
        most = limits.requests_per_minute
        self._left_requests = self._left_requests_before = most - self.requests if most else LIMIT_MAX
        self._left_tokens = self._left_tokens_before = min(
            limits.tokens_per_minute - self.tokens if limits.tokens_per_minute else LIMIT_MAX,
            limits.tokens_per_day - self.day_tokens if limits.tokens_per_day else LIMIT_MAX,
            limits.tokens_per_month - self.month_tokens if limits.tokens_per_month else LIMIT_MAX,
        )
        self._open_max = limits.concurrent_requests - self.open_elsewhere if limits.concurrent_requests else LIMIT_MAX
        return metered

    def catch_up(self) -> None:
        """Counts the requests that were admitted quickly. Then the next one has another look at the limits."""
        self._quick_until_s = 0.0
        requests = self._left_requests_before - self._left_requests
        if requests:
            tokens = self._left_tokens_before - self._left_tokens
            self._left_requests_before, self._left_tokens_before = self._left_requests, self._left_tokens
            self._count(self._seconds[-1], requests, tokens)

    def _count(self, second: _Second, requests: int, tokens: int) -> None:
        second.requests += requests
        second.tokens += tokens
        second.own_requests += requests
        second.own_tokens += tokens
        self.requests += requests
        self.tokens += tokens
        self.recent_requests += requests
        self.recent_tokens += tokens
        self.day_tokens += tokens
        self.month_tokens += tokens
        self.own_requests += requests
        self.own_tokens += tokens
        self.own_spent += tokens

    def roll(self, now_s: float) -> None:
        """Counts all requests, and forgets what has left the window."""
        self.catch_up()
        seconds = self._seconds
        first = int(now_s) - _COUNTED_S
        while seconds and seconds[0].second <= first:
            left = seconds.popleft()
            self.requests -= left.requests
            self.tokens -= left.tokens
            self.recent_requests -= left.own_requests
            self.recent_tokens -= left.own_tokens

    def refuses(self, limits: LimitsInForce, tokens: int, now_s: float, periods: Periods) -> Refusal | None:
        """`tokens`: as estimated. A request that is larger than a whole limit is admitted when nothing else counts
        towards it: it would never fit otherwise."""
        self.roll(now_s)
        most = limits.concurrent_requests
        if most and self.open + self.open_elsewhere >= most:
            return Refusal(LimitKind.CONCURRENT_REQUESTS, most, self.open + self.open_elsewhere, OPEN_RETRY_S)
        most = limits.requests_per_minute
        if most and self.requests >= most:
            return Refusal(LimitKind.REQUESTS_PER_MINUTE, most, self.requests, self._requests_wait_s(most, now_s))
        most = limits.tokens_per_minute
        if most and self.tokens > 0 and self.tokens + tokens > most:
            wait_s = self._tokens_wait_s(most - tokens, now_s)
            return Refusal(LimitKind.TOKENS_PER_MINUTE, most, self.tokens, wait_s)
        most = limits.tokens_per_day
        if most and self.day_tokens > 0 and self.day_tokens + tokens > most:
            return Refusal(LimitKind.TOKENS_PER_DAY, most, self.day_tokens, periods.day_ends_s - now_s)
        most = limits.tokens_per_month
        if most and self.month_tokens > 0 and self.month_tokens + tokens > most:
            return Refusal(LimitKind.TOKENS_PER_MONTH, most, self.month_tokens, periods.month_ends_s - now_s)
        return None

    def _requests_wait_s(self, most: int, now_s: float) -> float:
        """Until fewer than `most` requests count."""
        counted = self.requests
        for second in self._seconds:
            counted -= second.requests
            if counted < most:
                return second.second + _COUNTED_S - now_s
        return 0.0

    def _tokens_wait_s(self, most: int, now_s: float) -> float:
        """Until at most `most` tokens count, or none."""
        counted = self.tokens
        for second in self._seconds:
            counted -= second.tokens
            if counted <= max(0, most):
                return second.second + _COUNTED_S - now_s
        return 0.0

    def _now(self, now_s: float) -> _Second:
        second = int(now_s)
        seconds = self._seconds
        if not seconds or seconds[-1].second < second:
            seconds.append(_Second(second))
        return seconds[-1]

    def begin(self, tokens: int, now_s: float, periods: Periods) -> tuple[Self, int, float, int]:
        """Counts an admitted request, with the tokens that it is expected to use."""
        self.catch_up()
        self._count(self._now(now_s), 1, tokens)
        self.open += 1
        return (self, tokens, now_s, periods.day)

    def end(self, metered: MeteredRequest, tokens_in: int, tokens_out: int, now_s: float, periods: Periods) -> None:
        """Replaces the estimate by what the request used."""
        self.open -= 1
        self.correct([metered], tokens_in, tokens_out, now_s, periods)

    def correct(
        self, ended: Sequence[MeteredRequest], tokens_in: int, tokens_out: int, now_s: float, periods: Periods
    ) -> None:
        """Replaces the estimates of requests that are no longer open by what they used together. Many are corrected
        at once: for each alone, it would cost as much as to admit it."""
        self.catch_up()
        estimated = of_today = sum(map(_TOKENS_OF, ended))
        expired = 0
        if now_s - min(map(_BEGAN_OF, ended)) >= WINDOW_S:
            expired = sum(metered[TOKENS] for metered in ended if now_s - metered[BEGAN_S] >= WINDOW_S)
        if min(map(_DAY_OF, ended)) != periods.day:
            of_today = sum(metered[TOKENS] for metered in ended if metered[DAY] == periods.day)
        if tokens_out:
            share = min(1.0, len(ended) / _AVERAGE_OVER)
            self.average_output += (tokens_out / len(ended) - self.average_output) * share
        used = tokens_in + tokens_out
        change = used - estimated
        # What has left the window cannot be taken back from it.
        self._correct(change if change >= 0 else min(0, change + expired), now_s)
        self._spend(used - estimated, used - of_today)

    def abandon(
        self, metered: MeteredRequest, now_s: float, periods: Periods, *, was_sent: bool, prompt: int = 0
    ) -> None:
        """Ends a request without an answer. `was_sent`: a replica worked for it: the estimate stays in the window.
        `prompt`: its tokens, if budgets are charged for them."""
        self.catch_up()
        self.open -= 1
        _, tokens, began_s, day = metered
        if not was_sent and now_s - began_s < WINDOW_S:
            self._correct(-tokens, now_s)
        self._spend(prompt - tokens, prompt - (tokens if day == periods.day else 0))

    def _correct(self, change: int, now_s: float) -> None:
        if not change:
            return
        self.roll(now_s)
        self.own_tokens += change
        if change > 0:
            second = self._now(now_s)
            second.tokens += change
            second.own_tokens += change
            self.tokens += change
            self.recent_tokens += change
        else:
            self._take_back(-change, is_own=True)

    def _take_back(self, tokens: int, *, is_own: bool = False) -> None:
        for second in reversed(self._seconds):
            taken = min(tokens, second.own_tokens if is_own else second.tokens - second.own_tokens)
            second.tokens -= taken
            self.tokens -= taken
            if is_own:
                second.own_tokens -= taken
                self.recent_tokens -= taken
            tokens -= taken
            if not tokens:
                return

    def _spend(self, change: int, change_today: int) -> None:
        """`change_today`: a day that began meanwhile does not hold the estimate."""
        self.own_spent += change
        self.day_tokens = max(0, self.day_tokens + change_today)
        self.month_tokens = max(0, self.month_tokens + change_today)

    # The other processes

    def add_elsewhere(self, requests: int, tokens: int, spent: int, now_s: float) -> None:
        """Counts what another process has counted since its last message."""
        self.roll(now_s)
        second = self._now(now_s)
        second.requests += requests
        self.requests += requests
        if tokens >= 0:
            second.tokens += tokens
            self.tokens += tokens
        else:
            self._take_back(-tokens)
        self.day_tokens = max(0, self.day_tokens + spent)
        self.month_tokens = max(0, self.month_tokens + spent)

    def meet(self, recent: tuple[int, int], window: tuple[int, int], now_s: float) -> None:
        """Counts what another process, which is heard for the first time, has counted within the window: itself
        (`recent`), and with all that it knows (`window`), both as requests and tokens. If this process has just
        started, the others know more than it does; what one of them reported of another is not counted again when that
        one is heard."""
        self.roll(now_s)
        if now_s >= self._learned_until_s:
            self._learned = (0, 0)
            self._learned_until_s = now_s + _COUNTED_S
        learned_requests, learned_tokens = self._learned
        requests, learned_requests = _meet(recent[0], window[0], known=self.requests, learned=learned_requests)
        tokens, learned_tokens = _meet(recent[1], window[1], known=self.tokens, learned=learned_tokens)
        self._learned = learned_requests, learned_tokens
        self.add_elsewhere(requests, tokens, 0, now_s)

    def add_open_elsewhere(self, change: int) -> None:
        self.catch_up()
        self.open_elsewhere += change

    def begin_day(self) -> None:
        self.catch_up()
        self.day_tokens = 0

    def begin_month(self) -> None:
        self.catch_up()
        self.month_tokens = 0

    def adopt_sums(self, day_tokens: int, month_tokens: int, now_s: float) -> None:
        """The sums of the store. While requests end, they are late."""
        self.catch_up()
        if self.is_idle(now_s):
            self.day_tokens, self.month_tokens = day_tokens, month_tokens
        else:
            self.day_tokens = max(self.day_tokens, day_tokens)
            self.month_tokens = max(self.month_tokens, month_tokens)

    def is_idle(self, now_s: float) -> bool:
        last = self._seconds[-1].second if self._seconds else -SETTLED_AFTER_S
        return not self.open and not self.open_elsewhere and last <= now_s - SETTLED_AFTER_S

    def is_unused(self, now_s: float) -> bool:
        """Whether nothing would be lost with it."""
        self.roll(now_s)
        return not self._seconds and not self.open and not self.open_elsewhere


def _meet(recent: int, window: int, *, known: int, learned: int) -> tuple[int, int]:
    """What to count, and what is then learned of processes that were not heard yet."""
    new = max(0, recent - learned)
    more = max(0, window - known - new)
    return new + more, max(0, learned - recent) + more
