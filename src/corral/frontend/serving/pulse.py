"""This frontend's answers, told to the others; theirs, heard; all of them together, shown."""

import asyncio
from collections.abc import Awaitable, Callable

from corral.bus.messages import PulseBeat
from corral.core.pulse import Beat, Pulse, beat_between
from corral.frontend.serving.meters import Meters
from corral.system import Clock
from corral.telemetry.metrics import SECONDS

TELL_EVERY_S = 5.0


class FleetPulse:
    def __init__(self, meters: Meters, fold: Callable[[], None], *, frontend: str, clock: Clock) -> None:
        """`fold`: brings the meters up to date."""
        self._meters = meters
        self._fold = fold
        self._frontend = frontend
        self._clock = clock
        self._read = Beat(first_byte=(0,) * (len(SECONDS) + 1))
        self._pulse = Pulse(now_s=clock.monotonic_s())

    async def keep_telling(self, publish: Callable[[PulseBeat], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            before, self._read = self._read, self._look()
            beat = beat_between(before, self._read)
            if beat.requests:
                self._pulse.add(beat, now_s=self._clock.monotonic_s())
                await publish(
                    PulseBeat(
                        frontend=self._frontend,
                        requests=beat.requests,
                        failed=beat.failed,
                        tokens_in=beat.tokens_in,
                        tokens_out=beat.tokens_out,
                        first_byte=beat.first_byte,
                    )
                )

    def hear(self, told: PulseBeat) -> None:
        if told.frontend == self._frontend or len(told.first_byte) not in (0, len(SECONDS) + 1):
            return
        beat = Beat(
            requests=told.requests,
            failed=told.failed,
            tokens_in=told.tokens_in,
            tokens_out=told.tokens_out,
            first_byte=told.first_byte,
        )
        self._pulse.add(beat, now_s=self._clock.monotonic_s())

    def read(self) -> list[tuple[float, Beat]]:
        return self._pulse.read(now_s=self._clock.monotonic_s())

    def _look(self) -> Beat:
        self._fold()
        total = Beat()
        for (_, _, status), requests in self._meters.requests.children():
            count = int(requests.value)
            total += Beat(requests=count, failed=count if status.startswith("5") else 0)
        for (_, _, direction), tokens in self._meters.tokens.children():
            count = int(tokens.value)
            total += Beat(tokens_in=count) if direction == "in" else Beat(tokens_out=count)
        for _, times in self._meters.first_byte.children():
            total += Beat(first_byte=times.counts)
        return total + Beat(first_byte=(0,) * (len(SECONDS) + 1))
