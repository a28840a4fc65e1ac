"""The clocks of nodes are compared with the store's, so that a frontend with a wrong clock does not report the whole
fleet as skewed."""

from corral.core.errors import Unavailable
from corral.frontend.nodes.store_clock import COMPARE_EVERY_S, StoreClock
from harness.clocks import HeldClock


async def test_the_stores_time_is_known_between_reads_and_while_it_is_unreachable() -> None:
    clock, answers = HeldClock(), [5_000_000]

    async def read_ms() -> int:
        if not answers:
            raise Unavailable("the store does not answer")
        return answers.pop()

    store_clock = StoreClock(read_ms, clock)
    assert await store_clock.now_ms() == 5_000_000
    clock.now_s += 10
    assert await store_clock.now_ms() == 5_010_000, "the store is not read"
    clock.now_s += COMPARE_EVERY_S
    assert await store_clock.now_ms() == 5_070_000, "the store is unreachable: the last difference counts"
