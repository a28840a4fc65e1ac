"""A crowd on the event loop goes on a few at a time."""

import asyncio

from corral.system.yielding import Pace


async def count_turns(pace: Pace, crowd: int) -> list[int]:
    """How many went on in each turn of the loop."""
    went, turns = 0, [0]

    async def one() -> None:
        nonlocal went
        await pace.turn()
        went += 1
        turns[-1] += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(crowd):
            tasks.create_task(one())
        while went < crowd:
            await asyncio.sleep(0)
            turns.append(0)
    return [count for count in turns if count]


async def test_no_more_go_on_in_one_turn_of_the_loop_than_may() -> None:
    turns = await count_turns(Pace(16), 100)
    assert sum(turns) == 100
    assert max(turns) <= 16


async def test_a_crowd_that_comes_later_finds_it_as_the_first_did() -> None:
    pace = Pace(4)
    for _ in range(3):
        assert max(await count_turns(pace, 10)) <= 4


async def test_one_that_stops_waiting_holds_up_nobody() -> None:
    pace = Pace(1)
    first, second, third = (asyncio.create_task(pace.turn()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    async with asyncio.timeout(30):
        await asyncio.gather(first, third)
    assert second.cancelled()
