import asyncio

from corral.worker.named_locks import NamedLocks


async def test_who_comes_while_the_lock_changes_hands_waits_as_well() -> None:
    locks, inside, most = NamedLocks(), 0, 0

    async def take(turns: int) -> None:
        nonlocal inside, most
        for _ in range(turns):
            async with locks.held("a"):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*(take(20) for _ in range(5)))
    assert most == 1
    assert not locks.is_held("a")


async def test_other_names_do_not_wait_and_one_who_leaves_the_line_holds_up_nobody() -> None:
    locks = NamedLocks()
    async with locks.held("a"):
        waiting = asyncio.ensure_future(locks.held("a").__aenter__())
        await asyncio.sleep(0)
        async with asyncio.timeout(30), locks.held("b"):
            assert locks.is_held("a")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(30), locks.held("a"):
        assert locks.is_held("a")
    assert not locks.is_held("a")
