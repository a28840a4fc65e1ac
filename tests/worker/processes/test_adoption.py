"""kill -9 of a worker: what it left is taken over by the next, or ended."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from corral.core.processes.process import BackingOff, DesiredRun, ProcessKey, Ready
from corral.worker.processes.records import RecordDirectory
from harness.streams import connect
from harness.supervisor_bench import GROUPS, SERVER, Bench, server, until

WORKER = Path(__file__).with_name("supervising_process.py")
ROOT = Path(__file__).parents[3]
KEY = ProcessKey("model#0")


@dataclass
class Found:
    pid: int
    port: int
    token: str

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.pid)


async def start_worker(
    bench: Bench, kind: str, count: int, *behaviour: str
) -> tuple[asyncio.subprocess.Process, list[Found]]:
    worker = await launch_worker(bench, kind, count, *behaviour)
    line = await read_line(worker, b"[[")
    return worker, [Found(*found) for found in json.loads(line)]


async def launch_worker(bench: Bench, kind: str, count: int, *behaviour: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), str(bench.state), str(bench.first_port), kind, str(count), *behaviour),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
    )


async def read_line(worker: asyncio.subprocess.Process, start: bytes) -> bytes:
    assert worker.stdout is not None
    async with asyncio.timeout(30):
        while not (line := await worker.stdout.readline()).startswith(start):
            assert line, "the worker ended before it had said anything"
    return line


async def kill_worker(worker: asyncio.subprocess.Process) -> None:
    worker.kill()
    await worker.wait()


async def ask(found: Found) -> str:
    reader, writer = await connect(found.port)
    writer.write(f"GET /health HTTP/1.1\r\nAuthorization: Bearer {found.token}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()


@pytest.mark.parametrize("is_launched", [False, True], ids=["while-it-is-launched", "before-it-is-ready"])
async def test_an_order_that_confirms_a_process_while_it_starts_is_known_to_the_next_worker(
    bench: Bench, is_launched: bool
) -> None:
    async with bench.supervisor(stop=False) as supervisor:
        life = await supervisor.begin(server("model#0", "slow", "0.5", generation=3))
        await asyncio.sleep(0)  # by now it is being launched
        if is_launched:
            await until(lambda: life.process is not None)
        await supervisor.begin(server("model#0", "slow", "0.5", generation=4))
        await supervisor.until_ready(life)
        assert [view.spec.generation for view in supervisor.list()] == [4]
    async with bench.supervisor() as supervisor:
        assert [view.spec.generation for view in await supervisor.adopt()] == [4]


@pytest.mark.parametrize("kind", list(GROUPS))
async def test_after_kill_9_of_the_worker_every_process_serves_on_and_is_adopted(bench: Bench, kind: str) -> None:
    if (groups := GROUPS[kind]()) is None and kind != "none":
        pytest.skip(f"no control groups {kind} here")
    bench.groups = groups
    worker, found = await start_worker(bench, kind, 3, "escaped-helper")
    before = await ask(found[0])
    await kill_worker(worker)
    assert before.endswith(" ".join((await ask(found[0])).split()[-2:]))  # same process, same parent, and it may write
    async with bench.supervisor() as supervisor:
        adopted = await supervisor.adopt()
        assert sorted(view.pid or 0 for view in adopted) == sorted(one.pid for one in found)
        await until(lambda: all(isinstance(view.state, Ready) for view in supervisor.list()))
        running = await supervisor.start(server("model#0", "escaped-helper"))  # joins what was adopted
        assert (running.pid, running.token) in [(one.pid, one.token) for one in found]
        lines = [line.text for line in supervisor.logs.of(KEY).tail()]
        assert lines.count("request") >= 4  # two by the probe, then one before and one after the kill
        assert bench.ports is not None
        assert sorted(bench.ports.in_use) == sorted(one.port for one in found)
    assert bench.markers() == []
    assert not any(psutil.pid_exists(one.pid) for one in found)


async def test_a_process_that_died_meanwhile_is_started_again_with_its_exit_known(bench: Bench) -> None:
    worker, (found,) = await start_worker(bench, "v2", 1)
    await kill_worker(worker)
    process = found.process
    process.send_signal(signal.SIGSEGV)
    await until(lambda: not process.is_running())
    async with bench.supervisor() as supervisor:
        assert len(await supervisor.adopt()) == 1
        running = await supervisor.start(server())
        assert running.pid != found.pid
        (backing_off,) = [view.state for view in bench.changes if isinstance(view.state, BackingOff)]
        assert backing_off.last.signal == signal.SIGSEGV


async def test_a_crash_already_counted_is_not_counted_again(bench: Bench) -> None:
    async with bench.supervisor(stop=False) as supervisor:
        bench.policy = replace(bench.policy, base_s=60, cap_s=60)
        supervisor._context = replace(supervisor._context, policy=bench.policy)
        running = await supervisor.start(server())
        os.kill(running.pid, signal.SIGKILL)
        await until(lambda: isinstance(supervisor.list()[0].state, BackingOff))
    bench.changes.clear()
    async with bench.supervisor() as supervisor:  # the worker was replaced while the process waited for its restart
        await supervisor.adopt()
        await until(lambda: bench.changes)
        state = bench.changes[0].state
        assert isinstance(state, BackingOff)
        assert state.attempt == 1


async def test_a_stop_that_was_interrupted_is_finished(bench: Bench) -> None:
    worker, (found,) = await start_worker(bench, "v2", 1, "ignore-term", "stop")
    (marker,) = bench.markers()
    record = RecordDirectory(bench.state / "processes" / marker)
    await until(lambda: (read := record.read()) is not None and read.desired is DesiredRun.STOPPED)
    await kill_worker(worker)
    assert found.process.is_running()
    async with bench.supervisor() as supervisor:
        await supervisor.adopt()
        await until(lambda: supervisor.list() == ())
        assert not psutil.pid_exists(found.pid)
    assert bench.markers() == []


async def test_a_killed_worker_and_a_killed_shim_leave_no_orphan(any_bench: Bench) -> None:
    kind = next(kind for kind, make in GROUPS.items() if type(make()) is type(any_bench.groups))
    worker, (found,) = await start_worker(any_bench, kind, 1, "escaped-helper")
    shim = found.process.parent()
    assert shim is not None
    await kill_worker(worker)
    shim.kill()
    await until(lambda: not shim.is_running())
    process = found.process
    async with any_bench.supervisor() as supervisor:
        await supervisor.adopt()
        running = await supervisor.start(server("model#0", "escaped-helper"))
        assert running.pid != found.pid
        await until(lambda: not process.is_running())
        assert len(any_bench.left_over()) == 3  # shim, server and helper of the new one


async def test_remains_without_a_record_are_ended(bench: Bench) -> None:
    worker, (found,) = await start_worker(bench, "v2", 1)
    await kill_worker(worker)
    (marker,) = bench.markers()
    process = found.process
    (bench.state / "processes" / marker / "record.json").write_text("{half a rec")
    async with bench.supervisor() as supervisor:
        assert await supervisor.adopt() == ()
        await until(lambda: not process.is_running())
    assert bench.markers() == []


async def test_a_record_of_an_earlier_boot_is_forgotten_and_its_pids_are_left_alone(bench: Bench) -> None:
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    directory = bench.state / "processes" / ("0" * 32)
    async with bench.supervisor(stop=False) as supervisor:
        await supervisor.start(server())
        (marker,) = bench.markers()
        record = RecordDirectory(bench.state / "processes" / marker).read()
    assert record is not None
    directory.mkdir()
    RecordDirectory(directory).write(replace(record, boot_id="another", marker="0" * 32))
    (directory / "started").write_text(f"{stranger.pid} 1 {stranger.pid} 1\n")
    try:
        async with bench.supervisor() as supervisor:
            assert len(await supervisor.adopt()) == 1
            assert not directory.exists()
            assert stranger.returncode is None
            assert psutil.Process(stranger.pid).status() != psutil.STATUS_ZOMBIE
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_worker_killed_before_its_shim_spoke_leaves_nothing_to_adopt(bench: Bench) -> None:
    async with bench.supervisor(stop=False) as supervisor:
        await supervisor.start(server())
        await supervisor.stop(KEY, reason="only its record is needed")
        (bench.state / "processes").mkdir(exist_ok=True)
    directory = bench.state / "processes" / ("1" * 32)
    directory.mkdir()
    async with bench.supervisor() as supervisor:
        assert await supervisor.adopt() == ()
    assert bench.markers() == []


@pytest.mark.parametrize("delay_ms", [0, 5, 10, 20, 30, 40, 60, 80, 120])
async def test_a_worker_killed_at_any_moment_of_a_start_leaves_no_orphan(bench: Bench, delay_ms: int) -> None:
    """The moments between record, shim, note and program: what was started is adopted, the rest is swept."""
    worker = await launch_worker(bench, "v2", 2, "escaped-helper")
    await read_line(worker, b"launching")
    await asyncio.sleep(delay_ms / 1000)  # not to wait for something, but to strike at another moment
    await kill_worker(worker)
    async with bench.supervisor() as supervisor:
        adopted = await supervisor.adopt()
        running = await asyncio.gather(*(supervisor.start(view.spec) for view in adopted))
        assert len({one.port for one in running}) == len(adopted)
    assert bench.markers() == []
    assert [command for pid in psutil.pids() if (command := _command(pid)) and _serves(command, bench)] == []


def _command(pid: int) -> list[str]:
    try:
        process = psutil.Process(pid)
        return process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
    except psutil.Error:
        return []


def _serves(command: list[str], bench: Bench) -> bool:
    """By its command line, which a process does not lose with its parent: a server or helper of this test."""
    ports = {str(port) for port in range(bench.first_port, bench.first_port + bench.port_count)}
    return str(SERVER) in command and not ports.isdisjoint(command)


async def test_a_replaced_worker_leaves_its_processes_to_the_next(bench: Bench) -> None:
    async with bench.supervisor(stop=False) as supervisor:
        running = await supervisor.start(server())
    async with bench.supervisor() as supervisor:
        (view,) = await supervisor.adopt()
        assert view.pid == running.pid
        assert (await supervisor.start(server())).pid == running.pid


def test_a_record_whose_directory_somebody_else_removed_is_gone_as_desired(tmp_path: Path) -> None:
    record = RecordDirectory(tmp_path / "removed")
    record.remove()
    assert not record.path.exists()
