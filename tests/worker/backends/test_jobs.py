"""One job for identical requests; leaving it, cancelling it, and remembering over restarts what was ordered."""

import asyncio
from pathlib import Path

import pytest

from corral.artifacts import CancelToken
from corral.artifacts.errors import Cancelled
from corral.core.errors import Unavailable
from corral.system import SystemDisk
from corral.worker.backends.applied_generations import AppliedGenerations, OutdatedCommand
from corral.worker.backends.jobs import Jobs, Listener


class Slow:
    """Work that ends when told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.end = asyncio.Event()

    async def __call__(self, cancel: CancelToken, _report: Listener) -> int:
        self.runs += 1
        while not self.end.is_set():
            cancel.check()
            await asyncio.sleep(0.001)
        return self.runs


async def test_identical_requests_share_one_run_and_its_result() -> None:
    async with asyncio.TaskGroup() as tasks:
        jobs, work = Jobs(tasks), Slow()
        callers = [asyncio.ensure_future(jobs.join(b"same", work, backend="x")) for _ in range(6)]
        await asyncio.sleep(0.01)
        work.end.set()
        assert await asyncio.gather(*callers) == [1] * 6
        assert await jobs.join(b"same", work, backend="x") == 2, "done jobs are not remembered"


async def test_a_cancel_of_one_operation_leaves_the_others_their_job() -> None:
    async with asyncio.TaskGroup() as tasks:
        jobs, work = Jobs(tasks), Slow()
        first = asyncio.ensure_future(jobs.join(b"same", work, backend="x", op_id="one"))
        second = asyncio.ensure_future(jobs.join(b"same", work, backend="x", op_id="two"))
        await asyncio.sleep(0.01)
        assert jobs.cancel(op_id="one") == 1
        with pytest.raises(Cancelled):
            await first
        assert jobs.cancel(op_id="nobody") == 0
        work.end.set()
        assert await second == 1


async def test_the_last_ones_cancel_ends_the_work() -> None:
    async with asyncio.TaskGroup() as tasks:
        jobs, work = Jobs(tasks), Slow()
        callers = [asyncio.ensure_future(jobs.join(b"k", work, backend="x", op_id="one")) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert jobs.cancel(backend="x") == 2
        for caller in callers:
            with pytest.raises(Cancelled):
                await caller


async def test_a_failure_belongs_to_the_callers_and_not_to_the_group() -> None:
    async def fail(_cancel: CancelToken, _report: Listener) -> None:
        raise Unavailable("the registry is away")

    async with asyncio.TaskGroup() as tasks:
        jobs = Jobs(tasks)
        with pytest.raises(Unavailable, match="the registry is away"):
            await jobs.join(b"k", fail, backend="x")


async def test_a_caller_who_leaves_does_not_stop_the_job() -> None:
    async with asyncio.TaskGroup() as tasks:
        jobs, work = Jobs(tasks), Slow()
        leaver = asyncio.ensure_future(jobs.join(b"k", work, backend="x"))
        await asyncio.sleep(0.01)
        leaver.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaver
        stayer = asyncio.ensure_future(jobs.join(b"k", work, backend="x"))
        await asyncio.sleep(0.01)
        work.end.set()
        assert await stayer == 1


async def test_an_older_generation_is_rejected_also_after_a_restart(tmp_path: Path) -> None:
    generations = AppliedGenerations(tmp_path / "applied_generations.json", SystemDisk())
    await generations.accept("a", 5)
    await generations.accept("a", 5)
    await generations.accept("a", None)
    await generations.accept("b", 1)
    assert generations.applied("a") is None, "accepted is not yet applied"
    await generations.record_applied("a", 5)
    await generations.record_concrete("family", "cpu-a")
    again = AppliedGenerations(tmp_path / "applied_generations.json", SystemDisk())
    with pytest.raises(OutdatedCommand):
        await again.accept("a", 4)
    assert again.applied("a") == 5
    assert (again.concrete("family"), again.families("cpu-a")) == ("cpu-a", ["family"])
    await again.forget_concrete("cpu-a")
    assert again.families("cpu-a") == []
    with pytest.raises(OutdatedCommand):
        await again.accept("a", 4)


async def test_a_damaged_generations_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "applied_generations.json").write_text("{")
    with pytest.raises(Unavailable, match="Delete it and restart"):
        AppliedGenerations(tmp_path / "applied_generations.json", SystemDisk())
