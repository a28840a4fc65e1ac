"""What backends write: captured, bounded, harmless."""

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path

import psutil
import pytest

from corral.core.processes.log_lines import LogLine
from corral.core.processes.process import ProcessKey, StartFailed
from corral.worker.processes.logs import LogLimits, ProcessLog, ProcessLogs
from harness.machine_speed import Yardstick
from harness.supervisor_bench import Bench, script, server, until

KEY = ProcessKey("model#0")
FLOOD = "head -c 500000000 /dev/zero | tr '\\0' 'x' | fold -w 200; echo 'the last words' >&2; exit 9"


def disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # renamed while we looked
            total += path.stat().st_size
    return total


async def test_a_flood_of_500_mb_hurts_neither_disk_nor_memory_nor_worker(bench: Bench) -> None:
    bench.log_limits = LogLimits(rotate_bytes=1 << 20, rotate_count=2)
    lag_s = shim_bytes = most_on_disk = 0.0
    cpu_s = 0.0
    async with bench.supervisor() as supervisor:
        starting = asyncio.ensure_future(supervisor.start(script("model#0", FLOOD)))
        await until(lambda: supervisor.list() and supervisor.list()[0].pid)
        shim = psutil.Process(supervisor.list()[0].pid).parent()
        assert shim is not None
        directory = supervisor.logs.of(KEY).directory
        began_s = time.monotonic()
        with Yardstick() as yardstick:
            while not starting.done():
                turn_s = time.monotonic()
                await asyncio.sleep(0.02)
                lag_s = max(lag_s, time.monotonic() - turn_s - 0.02)
                try:
                    shim_bytes = max(shim_bytes, shim.memory_info().rss)
                    cpu_s = max(cpu_s, shim.cpu_times().user + shim.cpu_times().system)
                except psutil.NoSuchProcess:
                    continue
                most_on_disk = max(most_on_disk, disk_bytes(directory))
        took_s = time.monotonic() - began_s
        problem = starting.exception()
        assert isinstance(problem, StartFailed)
        assert problem.failed.last.code == 9
        assert problem.failed.stderr_tail[-1] == "the last words"
        texts = [line.text for line in supervisor.logs.of(KEY).tail()]
        assert any("bytes of output dropped" in text for text in texts)
    print(f"500 MB in {took_s:.1f} s: shim {shim_bytes / 1e6:.0f} MB and {cpu_s:.1f} s of CPU,", end=" ")
    print(f"{most_on_disk / 1e6:.1f} MB on disk, the worker's loop late by at most {lag_s * 1e3:.0f} ms")
    assert most_on_disk < 3.1 * (1 << 20)
    assert cpu_s < 0.5 * took_s
    assert shim_bytes < 40 << 20
    assert lag_s < yardstick.allows_s(1)


async def test_lines_are_kept_with_time_and_stream_over_restarts_and_rotation(bench: Bench) -> None:
    bench.log_limits = LogLimits(rotate_bytes=20_000, rotate_count=2)
    text = "for i in $(seq 1000); do echo line $i; done; echo oops >&2; exit 1"
    async with bench.supervisor() as supervisor:
        for _ in range(2):
            with pytest.raises(StartFailed):
                await supervisor.start(script("model#0", text))
        log = supervisor.logs.of(KEY)
        lines = log.tail(900)
        assert len(lines) == 900
        assert {line.stream for line in lines} == {"stdout", "stderr"}
        assert [line.text for line in log.tail(2, stream="stdout")] == ["line 999", "line 1000"]
        assert [line.text for line in log.tail(stream="stderr")][-1] == "oops"
        assert abs(lines[-1].at_ms - time.time() * 1000) < 60_000
        assert sorted(path.name for path in log.directory.iterdir()) == ["1.log", "2.log", "current.log", "key"]
        assert disk_bytes(log.directory) < 3 * 20_000 + 100
        assert supervisor.logs.keys() == [KEY]


async def test_empty_lines_do_not_get_around_the_limits(bench: Bench) -> None:
    bench.log_limits = LogLimits(rotate_bytes=1 << 20, rotate_count=1)
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed):
            await supervisor.start(script("model#0", "yes '' | head -c 30000000; exit 1"))
        assert disk_bytes(supervisor.logs.of(KEY).directory) < 2.1 * (1 << 20)


async def test_hostile_lines_are_made_harmless_on_disk_too(bench: Bench) -> None:
    """S-46."""
    text = r"""printf '\033[2Jgone\n\377\376bad\na\rb\r\nno end'; head -c 100000 /dev/zero | tr '\0' 'y'; exit 1"""
    async with bench.supervisor() as supervisor:
        with pytest.raises(StartFailed):
            await supervisor.start(script("model#0", text))
        log = supervisor.logs.of(KEY)
        texts = [line.text for line in log.tail()]
        assert texts[:3] == ["?[2Jgone", "\ufffd\ufffdbad", "a"]
        assert all(len(text) <= 8300 for text in texts)
        assert sum(text.count("y") for text in texts) >= 90_000
        assert b"\x1b" not in (log.directory / "current.log").read_bytes()


async def test_a_follower_goes_on_where_the_snapshot_ended_also_across_rotation(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path)
    current = tmp_path / "current.log"
    current.write_bytes(b"1 o before\n2 o unfini")
    lines, place = log.snapshot()
    assert [line.text for line in lines] == ["before"]
    seen: list[LogLine] = []

    async def follow() -> None:
        async for lines in log.follow(place):
            seen.extend(lines)

    following = asyncio.ensure_future(follow())
    with current.open("ab") as file:
        file.write(b"shed\n3 e tw")
    await until(lambda: len(seen) == 1)
    with current.open("ab") as file:
        file.write(b"o\n")
    current.rename(tmp_path / "1.log")
    current.write_bytes(b"4 o three\n")
    await until(lambda: len(seen) == 3)
    following.cancel()
    assert [line.text for line in seen] == ["unfinished", "two", "three"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_full_disk_loses_lines_and_not_the_backend(bench: Bench, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    talking = "while true; do head -c 3000 /dev/zero | tr '\\0' z; echo; done & exec sleep 60"
    mount = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small))
    assert await mount.wait() == 0
    try:
        async with bench.supervisor() as supervisor:
            bench.state.mkdir(exist_ok=True)
            (bench.state / "logs").symlink_to(small)
            starting = asyncio.ensure_future(supervisor.start(script("model#0", talking)))
            await until(lambda: shutil.disk_usage(small).free == 0)
            process = psutil.Process(supervisor.list()[0].pid)
            talker = process.children()[0]
            before_s = talker.cpu_times().children_user + talker.cpu_times().children_system
            await until(lambda: sum(talker.cpu_times()[2:4]) > before_s + 0.05)  # it is not held up
            assert process.is_running()
            assert not starting.done()
            resize = await asyncio.create_subprocess_exec("mount", "-o", "remount,size=64m", str(small))
            assert await resize.wait() == 0
            log = supervisor.logs.of(KEY)
            await until(lambda: any("disk full" in line.text for line in log.tail()))
            await supervisor.stop(KEY, reason="seen")
            await asyncio.wait([starting])
    finally:
        unmount = await asyncio.create_subprocess_exec("umount", "--lazy", str(small))
        assert await unmount.wait() == 0


async def test_a_log_that_cannot_be_written_does_not_keep_a_backend_from_serving(bench: Bench) -> None:
    async with bench.supervisor() as supervisor:
        directory = supervisor.logs.make(KEY).directory
        (directory / "current.log").mkdir()
        running = await supervisor.start(server())
        assert supervisor.running(KEY) == running
        assert supervisor.logs.of(KEY).tail() == []


def test_the_tail_is_the_same_however_the_blocks_fall(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path)
    records = [f"{number} o {'z' * (number % 3000)}" for number in range(1, 400)]
    (tmp_path / "current.log").write_text("".join(f"{record}\n" for record in records))
    for count in (1, 7, 250, 399, 1000):
        assert [line.at_ms for line in log.tail(count)] == list(range(max(1, 400 - count), 400))
    assert ProcessLog(tmp_path / "nowhere").tail() == []


def test_logs_of_keys_that_stopped_long_ago_are_swept(tmp_path: Path) -> None:
    logs = ProcessLogs(tmp_path, LogLimits(keys=2))
    for age, name in enumerate(["kept", "a/b", "a_b", "old"]):
        directory = logs.make(ProcessKey(name)).directory
        os.utime(directory, (1000 - age, 1000 - age))
    logs.sweep([ProcessKey("kept")])
    assert sorted(logs.keys()) == ["a/b", "a_b", "kept"]
