"""Many starts and stops leave nothing: no port, descriptor, process, task, record or group.

The counts are exact, so one that leaks shows; a whole worker does 200 in commands/test_faults.py."""

import asyncio
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from corral.worker.processes.cgroups import GroupsV2
from harness.supervisor_bench import Bench, server

COUNT, AT_ONCE = 60, 8


async def test_many_starts_and_stops_leak_nothing(bench: Bench, own_groups: Path | None) -> None:
    bench.port_count = COUNT + AT_ONCE
    me = psutil.Process()
    others = _zombies(me)  # of tests before this one
    gate = asyncio.Semaphore(AT_ONCE)
    began_s = time.monotonic()
    pids = []
    async with bench.supervisor() as supervisor:

        async def once(number: int) -> None:
            async with gate:
                running = await supervisor.start(server(f"model#{number}"))
                pids.append(running.pid)
                assert await supervisor.stop(running.spec.key, reason="churn")

        await once(-1)  # what is made once, such as threads, is made before we count
        fds, tasks = me.num_fds(), len(asyncio.all_tasks())
        async with asyncio.TaskGroup() as group:
            for number in range(COUNT):
                group.create_task(once(number))
        gc.collect()
        took_s = time.monotonic() - began_s
        assert me.num_fds() <= fds
        assert len(asyncio.all_tasks()) == tasks
        assert supervisor.list() == ()
        assert bench.ports is not None
        assert bench.ports.in_use == {}
        assert _left_in(own_groups) == []
    assert len(set(pids)) == COUNT + 1
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert _zombies(me) <= others
    assert bench.markers() == []
    print(f"{COUNT} starts and stops in {took_s:.1f} s; worker {me.memory_info().rss / 1e6:.0f} MB")


@pytest.fixture
def own_groups(bench: Bench) -> Iterator[Path | None]:
    """A group of this test's own to make groups in: others on this machine come and go meanwhile."""
    if not isinstance(bench.groups, GroupsV2):
        yield None
        return
    parent = bench.groups.make(f"churn-{os.getpid()}").directory
    bench.groups = GroupsV2(parent)
    yield parent
    parent.rmdir()


def _zombies(me: psutil.Process) -> set[int]:
    return {child.pid for child in me.children() if child.status() == psutil.STATUS_ZOMBIE}


def _left_in(parent: Path | None) -> list[str]:
    return [path.name for path in parent.iterdir() if path.is_dir()] if parent is not None else []
