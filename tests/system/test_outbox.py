"""Chunks that wait for the end of the loop's pass: in order, in turn, and never in the way of others."""

import asyncio
from collections.abc import Callable

from corral.frontend.gateway.upstream.calls import ChunkRelay
from corral.frontend.gateway.upstream.outbox import AT_ONCE, Outbox


def post(outbox: Outbox, relay: ChunkRelay, data: bytes) -> None:
    """As a connection does with a chunk that came."""
    if relay.late:
        relay.late += data
    else:
        relay.late = data
        outbox.post(relay)


async def until_written(relay: ChunkRelay) -> None:
    for _ in range(100):
        if not relay.late:
            return
        await asyncio.sleep(0)
    raise AssertionError("it was never written")


async def test_what_came_in_one_pass_goes_out_in_one_write() -> None:
    outbox, written = Outbox(), list[bytes]()
    relay = ChunkRelay(written.append)
    for chunk in (b"one ", b"two ", b"three"):
        post(outbox, relay, chunk)
    assert written == []
    await until_written(relay)
    assert written == [b"one two three"]
    post(outbox, relay, b"four")
    await until_written(relay)
    assert written == [b"one two three", b"four"]


async def test_others_are_looked_at_while_many_wait() -> None:
    outbox, written = Outbox(), list[int]()

    def write_to(number: int) -> Callable[[bytes], None]:
        return lambda _data: written.append(number)

    relays = [ChunkRelay(write_to(number)) for number in range(3 * AT_ONCE)]
    for relay in relays:
        post(outbox, relay, b"chunk")
    seen: list[int] = []
    while len(written) < len(relays) and len(seen) < 100:
        await asyncio.sleep(0)
        seen.append(len(written))
    assert written == list(range(3 * AT_ONCE))
    assert len(seen) >= 3
    assert seen[0] <= AT_ONCE


async def test_of_very_many_a_part_goes_out_each_time() -> None:
    outbox, written = Outbox(), list[bytes]()
    relays = [ChunkRelay(written.append) for _ in range(100 * AT_ONCE)]
    for relay in relays:
        post(outbox, relay, b"chunk")
    looks = 0
    while len(written) < len(relays):
        await asyncio.sleep(0)
        looks += 1
        assert looks < 50


async def test_who_writes_in_between_flushes_first_and_nothing_comes_twice() -> None:
    outbox, written = Outbox(), list[bytes]()
    relay, other = ChunkRelay(written.append), ChunkRelay(written.append)
    post(outbox, relay, b"chunk")
    relay.flush()
    written.append(b"end")
    post(outbox, other, b"other")
    await until_written(other)
    assert written == [b"chunk", b"end", b"other"]


async def test_what_is_late_for_a_client_that_left_is_dropped() -> None:
    outbox, written = Outbox(), list[bytes]()
    gone, other = ChunkRelay(written.append), ChunkRelay(written.append)
    post(outbox, gone, b"chunk")
    post(outbox, other, b"other")
    gone.drop()
    await until_written(other)
    assert written == [b"other"]


async def test_a_write_that_fails_keeps_no_other_stream_waiting() -> None:
    def fail(_data: bytes) -> None:
        raise RuntimeError("the handle is closed")

    failures = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
    outbox, written = Outbox(), list[bytes]()
    broken, other = ChunkRelay(fail), ChunkRelay(written.append)
    post(outbox, broken, b"chunk")
    post(outbox, other, b"other")
    await until_written(other)
    assert written == [b"other"]
    assert len(failures) == 1
