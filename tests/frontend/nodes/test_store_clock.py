"""The clocks of nodes are compared with the store's, so that a frontend with a wrong clock does not report the whole
fleet as skewed."""

from corral.core.errors import Unavailable
from corral.frontend.nodes.store_clock import COMPARE_EVERY_S, StoreClock


class Clock:
    def __init__(self) -> None:
        self.wall_ms, self.s = 1_000_000, 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.s


async def test_the_stores_time_is_known_between_reads_and_while_it_is_unreachable() -> None:
    clock, answers = Clock(), [5_000_000]

    async def read_ms() -> int:
        if not answers:
            raise Unavailable("the store does not answer")
        return answers.pop()

    store_clock = StoreClock(read_ms, clock)  # type: ignore[arg-type]
    assert await store_clock.now_ms() == 5_000_000
    clock.wall_ms, clock.s = clock.wall_ms + 10_000, 10.0
    assert await store_clock.now_ms() == 5_010_000, "the store is not read"
    clock.wall_ms, clock.s = clock.wall_ms + 60_000, COMPARE_EVERY_S + 10.0
    assert await store_clock.now_ms() == 5_070_000, "the store is unreachable: the last difference counts"
