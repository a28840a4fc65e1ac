"""Admits the requests of limited keys, and keeps the counts of all frontend processes together.

A decision reads memory only. Each process counts its own requests and tokens and publishes the counts of keys in use
several times a second; what others publish is added here. A process that hears nothing from the others admits at most
one window's worth of its own (ADR 0901). Daily and monthly budgets are the sums of `usage` in the store, which this
process reads every few seconds, and what was counted since."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from corral.bus.messages import KeyCounts, KeyUse
from corral.core.access.calendar import DAY_MS, ends_in_ms, month_days
from corral.core.access.key_limits import LimitsInForce
from corral.core.access.key_meter import METER, KeyMeter, MeteredRequest, OwnUse, Periods, Refusal
from corral.core.access.token_estimate import estimate_tokens
from corral.core.errors import CorralError
from corral.store.serving.usage import KeyTokens
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

PUBLISH_EVERY_S = 1.0
PUBLISH_AT_MOST_EVERY_S = 0.25
FORGET_OPEN_AFTER_S = 5.0
FORGET_PROCESS_AFTER_S = 120.0
FORGET_RETIRED_AFTER_S = 600.0
READ_SUMS_EVERY_S = 2.0
LATE_MS = 60_000
KEYS_PER_MESSAGE = 2000


class TokenSums(Protocol):
    async def read_key_tokens(self, *, known_day: int | None = None) -> KeyTokens: ...


@dataclass(slots=True)
class _Process:
    """Another frontend process, as far as it was heard."""

    heard_s: float
    counted: dict[str, OwnUse] = field(default_factory=dict)
    open: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Open requests by key, and when it said so."""


class LimitedKey(KeyMeter):
    """A meter, and what the answers to this key's requests say of its limits."""

    __slots__ = ("lines", "lines_of", "lines_until_s")

    def __init__(self, key_id: str, own: OwnUse | None = None) -> None:
        super().__init__(key_id, own)
        self.lines = b""
        self.lines_of: object = None
        """The client's protocol."""
        self.lines_until_s = 0.0


class KeyMeters:
    def __init__(self, *, frontend: str, run: str, now_s: Callable[[], float]) -> None:
        """`run`: identifies this run of this process."""
        self._frontend = frontend
        self._run = run
        self._now_s = now_s
        self._meters: dict[str, LimitedKey] = {}
        self._retired: dict[str, tuple[OwnUse, float]] = {}
        """What was counted for keys whose meters were removed, and when: the others may still know these counts."""
        self._unpublished: list[KeyMeter] = []
        self._others: dict[str, _Process] = {}
        self._edge = asyncio.Event()
        self.fold: Callable[[], None] = lambda: None
        """Calls `correct` for all requests that were settled; set by whoever counts them."""
        self.periods = Periods()
        self._today: Mapping[str, int] = {}
        self._earlier: Mapping[str, int] = {}
        self._earlier_of: int | None = None

    def find(self, key_id: str) -> LimitedKey | None:
        self.fold()
        meter = self._meters.get(key_id)
        if meter is not None:
            meter.roll(self._now_s())
        return meter

    def _meter(self, key_id: str) -> LimitedKey:
        meter = self._meters.get(key_id)
        if meter is None:
            own, _ = self._retired.pop(key_id, (None, 0.0))
            meter = self._meters[key_id] = LimitedKey(key_id, own)
            self._adopt(meter, self._now_s())
        return meter

    # Requests of this process

    def admit(
        self, key_id: str, limits: LimitsInForce, body: bytes, stated: object, is_form: bool, now_s: float
    ) -> tuple[LimitedKey, int, float, int] | Refusal:
        """A `MeteredRequest`, if it fits. `stated`: the longest answer that the client wants."""
        meter = self._meters.get(key_id) or self._meter(key_id)
        tokens = 0
        if limits.counts_tokens:
            tokens = estimate_tokens(body, is_form, stated, meter.average_output)
        found = meter.admit(limits, tokens, now_s, self.periods)
        if found.__class__ is Refusal:
            self.fold()  # with what was really used, it may fit
            found = meter.admit(limits, tokens, now_s, self.periods)
        if not meter.unpublished and found.__class__ is tuple:
            self.note_changed(meter)
        return found

    def correct(self, ended: Sequence[MeteredRequest], tokens_in: int, tokens_out: int) -> None:
        """Replaces the estimates of settled requests of one key by what they used together."""
        meter = ended[0][METER]
        meter.correct(ended, tokens_in, tokens_out, self._now_s(), self.periods)
        self.note_changed(meter)

    def abandon(self, metered: MeteredRequest, now_s: float, *, was_sent: bool, prompt: int = 0) -> None:
        """The request ended without an answer. `was_sent`: a replica had begun to work for it. `prompt`: the tokens for
        which usage was counted all the same."""
        meter = metered[METER]
        meter.abandon(metered, now_s, self.periods, was_sent=was_sent, prompt=prompt)
        self.note_changed(meter)

    def note_changed(self, meter: KeyMeter) -> None:
        """The other processes must hear of it."""
        if not meter.unpublished:
            meter.unpublished = True
            self._unpublished.append(meter)
            self._edge.set()

    # The other processes

    def receive(self, message: KeyUse) -> None:
        if message.run == self._run:
            return
        now_s = self._now_s()
        process = self._others.get(message.run)
        if process is None:
            process = self._others[message.run] = _Process(now_s)
        process.heard_s = now_s
        for key_id, counts in message.keys.items():
            meter = self._meter(key_id)
            before = process.counted.get(key_id)
            process.counted[key_id] = OwnUse(counts.requests, counts.tokens, counts.spent)
            if before is None:
                recent = (counts.recent_requests, counts.recent_tokens)
                meter.meet(recent, (counts.window_requests, counts.window_tokens), now_s)
            else:
                # Never below what it had: messages may arrive in another order.
                requests = max(0, counts.requests - before.requests)
                meter.add_elsewhere(requests, counts.tokens - before.tokens, counts.spent - before.spent, now_s)
            meter.add_open_elsewhere(counts.open - process.open.get(key_id, (0, 0.0))[0])
            if counts.open:
                process.open[key_id] = (counts.open, now_s)
            else:
                process.open.pop(key_id, None)

    def _forget_silent(self, now_s: float) -> None:
        """A killed process leaves no open requests behind."""
        for run, process in list(self._others.items()):
            late = [key for key, (_, at_s) in process.open.items() if at_s < now_s - FORGET_OPEN_AFTER_S]
            for key_id in late:
                self._meters[key_id].add_open_elsewhere(-process.open.pop(key_id)[0])
            if process.heard_s < now_s - FORGET_PROCESS_AFTER_S:
                del self._others[run]

    def _take_unpublished(self) -> Iterator[KeyUse]:
        now_s = self._now_s()
        self.fold()
        changed, self._unpublished = self._unpublished, []
        for meter in changed:
            meter.unpublished = False
        # Open requests are repeated: the others forget them otherwise.
        chosen = {meter.key_id: meter for meter in changed}
        chosen |= {meter.key_id: meter for meter in self._meters.values() if meter.open}
        meters = list(chosen.values())
        for start in range(0, len(meters), KEYS_PER_MESSAGE):
            part = meters[start : start + KEYS_PER_MESSAGE]
            yield KeyUse(frontend=self._frontend, run=self._run, keys={m.key_id: _counts(m, now_s) for m in part})

    def messages(self) -> list[KeyUse]:
        """What the other processes must hear now."""
        return list(self._take_unpublished())

    async def keep_publishing(
        self, publish: Callable[[KeyUse], Awaitable[None]], *, every_s: float = PUBLISH_EVERY_S
    ) -> None:
        while True:
            await wait_or_timeout(self._edge, within_s=every_s)
            now_s = self._now_s()
            self._forget_silent(now_s)
            self.roll_periods(now_s)
            for message in self.messages():
                try:
                    await publish(message)
                except CorralError as error:  # counts only grow: the next message makes up for this one
                    log.debug("key_use.publish_failed", error=str(error))
            await asyncio.sleep(PUBLISH_AT_MOST_EVERY_S)

    # Budgets

    def _adopt(self, meter: KeyMeter, now_s: float) -> None:
        today = self._today.get(meter.key_id, 0)
        meter.adopt_sums(today, today + self._earlier.get(meter.key_id, 0), now_s)

    def roll_periods(self, now_s: float) -> None:
        """A day or a month ended while the store was not read."""
        periods = self.periods
        if now_s >= periods.day_ends_s > 0:
            periods.day += 1
            periods.day_ends_s += DAY_MS / 1000
            self._begin_day()
        if now_s >= periods.month_ends_s > 0:
            periods.month_ends_s += 28 * DAY_MS / 1000  # until the store is read, which knows the calendar
            self._begin_month()

    def _begin_day(self) -> None:
        self._today = {}
        self._earlier_of = None
        for meter in self._meters.values():
            meter.begin_day()

    def _begin_month(self) -> None:
        self._earlier = {}
        for meter in self._meters.values():
            meter.begin_month()

    async def read_sums(self, store: TokenSums) -> None:
        found = await store.read_key_tokens(known_day=self._earlier_of)
        now_s = self._now_s()
        self.roll_periods(now_s)
        day_ms, month_ms = ends_in_ms(found.now_ms)
        periods = self.periods
        day = found.now_ms // DAY_MS
        if day == periods.day - 1 and day_ms < LATE_MS:
            return  # the store answered just before midnight, and the answer came after it
        if 0 < periods.day != day:
            # How long the store takes to answer differs, so its new day may begin before ours has ended.
            self._begin_day()
            if month_days(day) != month_days(periods.day):
                self._begin_month()
        periods.day = day
        periods.day_ends_s, periods.month_ends_s = now_s + day_ms / 1000, now_s + month_ms / 1000
        self._today = found.today
        if found.earlier is not None:
            self._earlier, self._earlier_of = found.earlier, periods.day
        for meter in self._meters.values():
            self._adopt(meter, now_s)

    async def keep_reading_sums(self, store: TokenSums, is_needed: Callable[[], bool]) -> None:
        """`is_needed`: whether any key has a budget."""
        while True:
            if is_needed():
                await self.read_sums(store)
            self.prune(self._now_s())
            await asyncio.sleep(READ_SUMS_EVERY_S)

    def prune(self, now_s: float) -> None:
        """Meters of keys that are not used any more. Their sums are in the store."""
        meters = self._meters.values()
        unused = [meter.key_id for meter in meters if not meter.unpublished and meter.is_unused(now_s)]
        for key_id in unused:
            self._retired[key_id] = self._meters.pop(key_id).own, now_s
            for process in self._others.values():
                process.counted.pop(key_id, None)
        # The oldest come first. The others forget a key as soon as nobody has used it for a minute.
        while self._retired and (oldest := next(iter(self._retired.items())))[1][1] < now_s - FORGET_RETIRED_AFTER_S:
            del self._retired[oldest[0]]


def _counts(meter: KeyMeter, now_s: float) -> KeyCounts:
    meter.roll(now_s)
    return KeyCounts(
        requests=meter.own_requests,
        tokens=meter.own_tokens,
        spent=meter.own_spent,
        open=meter.open,
        recent_requests=meter.recent_requests,
        recent_tokens=meter.recent_tokens,
        window_requests=meter.requests,
        window_tokens=meter.tokens,
    )
