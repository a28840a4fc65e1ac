"""What goes wrong on a machine, and what the worker makes of it."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.localai_backend import http_files, localai_files, tiny_http_files, write_http_backend
from harness.machine_speed import Yardstick, promised
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.ports import take_ports
from harness.programs import call
from harness.single_worker import SingleWorker
from harness.waiting import is_listening, wait_until, wait_until_async
from harness.worker_commands import install, is_dead, start, until_state, with_helper, write

MOST_RSS_BYTES = 80 << 20


def helpers(worker: SingleWorker) -> list[int]:
    return [int(path.read_text()) for path in (worker.data_dir / "run" / "processes").glob("*/home/helper")]


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_backends_and_their_helpers_outlive_the_worker_and_are_taken_over(
    tmp_path: Path, nats: Nats, how: str
) -> None:
    """F-06, F-07: `kill -9` and an orderly stop; the streams a backend serves are nobody's business but its own."""
    worker = SingleWorker(tmp_path, nats)
    try:
        source = write(tmp_path / "source", with_helper(http_files()))
        async with worker.frontend() as frontend:
            await install(frontend, source)
            started = [await start(frontend, f"m{number}") for number in range(3)]
        assert all(reply["success"] for reply in started), started
        pids = {reply["corral"]["process_key"]: reply["corral"]["pid"] for reply in started}
        if how == "kill":
            worker.program.kill()
        else:
            assert worker.program.stop() == 0
        for reply in started:
            assert call("GET", f"http://{reply['address']}/x", key=reply["corral"]["token"]).status == 200
        worker.restart()
        async with worker.frontend() as frontend:
            for key, pid in pids.items():
                assert (await until_state(frontend, key, "ready"))["pid"] == pid
            tree = helpers(worker)
            assert len(tree) == 3
            await frontend.tell("backend.stop", backend="web")

            async def gone() -> bool:
                return await frontend.processes() == {}

            await wait_until_async(gone, what="all have stopped")
            assert all(map(is_dead, [*pids.values(), *tree]))
        zombies = [child for child in psutil.Process(worker.program.pid).children() if child.status() == "zombie"]
        assert zombies == []
    finally:
        worker.close()


async def test_a_stop_from_an_administrator_ends_the_backends_too(tmp_path: Path, nats: Nats) -> None:
    worker = SingleWorker(tmp_path, nats)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            started = await start(frontend, "m")
            await frontend.tell("stop")
            assert await asyncio.to_thread(worker.program.wait, 30) == 0
        assert is_dead(started["corral"]["pid"])
    finally:
        assert worker.close() == []


async def test_a_crash_is_reported_and_mended_and_a_crash_loop_ends_with_its_reason(
    worker: SingleWorker, tmp_path: Path
) -> None:
    """F-10."""
    files = http_files()
    files["server.py"] = (
        b"import os, sys, threading, signal\n"
        b"if os.path.exists('/proc/self') and sys.argv[3] == '/broken':\n"
        b"    sys.exit('no such model: /broken')\n" + files["server.py"]
    )
    source = write(tmp_path / "source", files)
    async with worker.frontend() as frontend, frontend.listening("corral.report") as reports:
        await install(frontend, source)
        failed = await start(frontend, "broken", start={"model": "/broken"})
        assert (failed["success"], failed["code"]) == (False, "start_failed")
        assert "exit code 1" in failed["error"]
        assert "no such model: /broken" in failed["error"]
        started = await start(frontend, "m")
        os.kill(started["corral"]["pid"], signal.SIGKILL)

        def seen() -> bool:
            return any(
                process["process_key"] == "m#0" and process["state"] == "backing_off" and "SIGKILL" in process["reason"]
                for report in reports
                for process in report["processes"]
            )

        async def told() -> bool:
            return seen()

        await wait_until_async(told, what="the crash is reported with its reason")
        again = await until_state(frontend, "m#0", "ready")
        assert again["restarts"] == 1
        assert again["pid"] != started["corral"]["pid"]


async def test_a_backend_that_keeps_crashing_ends_as_failed_and_a_new_order_starts_it_again(
    tmp_path: Path, nats: Nats
) -> None:
    """F-10: the budget. Each crash is a real kill -9 of a process that was ready."""
    worker = SingleWorker(
        tmp_path, nats, "--no-keep-backends", "--backend-restarts", "4", "--backend-restart-delay", "0.1"
    )
    killed = set()
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            assert (await start(frontend, "m"))["success"]

            async def failed() -> dict[str, Any] | None:
                process = (await frontend.processes())["m#0"]
                if process["state"] == "failed":
                    return process
                if process["state"] == "ready" and process["pid"] not in killed:
                    killed.add(process["pid"])
                    os.kill(process["pid"], signal.SIGKILL)
                return None

            row = await wait_until_async(failed, what="it is given up", within_s=90)
            print(f"given up after {len(killed)} crashes: {row['reason']}")
            assert len(killed) == 5, "the first process and four restarts"
            assert "SIGKILL" in row["reason"]
            assert "(limit " in row["reason"]
            assert "address" not in row
            again = await start(frontend, "m")
            assert again["success"], again
    finally:
        assert worker.close() == []


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group that its members' memory can be limited with."""
    group = _make_memory_group()
    if group is None:
        pytest.skip("this kernel does not let us make a control group with a limit of memory")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text() or None, what="the group is empty")
    group.rmdir()


def _make_memory_group() -> Path | None:
    for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        group = Path(root, f"corral-test-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
            return group
        group.rmdir()
    return None


def _limit_memory(group: Path, limit_bytes: int, pid: int) -> None:
    name = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
    (group / name).write_text(str(limit_bytes))
    (group / "cgroup.procs").write_text(str(pid))


async def test_a_backend_that_runs_out_of_memory_is_told_so_and_started_again(
    worker: SingleWorker, tmp_path: Path, memory_group: Path
) -> None:
    """F-10: killed by the kernel."""
    async with worker.frontend() as frontend, frontend.listening("corral.report") as reports:
        await install(frontend, write_http_backend(tmp_path / "source"))
        started = await start(frontend, "m")
        _limit_memory(memory_group, 64 << 20, started["corral"]["pid"])
        with pytest.raises(OSError, match=r"Remote end closed|reset"):
            await asyncio.to_thread(call, "GET", f"http://{started['address']}/grow", key=started["corral"]["token"])

        async def told() -> bool:
            rows = [row for report in reports for row in report["processes"]]
            return any("may have run out of memory" in row.get("reason", "") for row in rows)

        await wait_until_async(told, what="a report tells why it ended")
        again = await until_state(frontend, "m#0", "ready")
        assert again["pid"] != started["corral"]["pid"]


async def test_a_backend_that_will_not_go_and_floods_is_gone_within_20_s(worker: SingleWorker, tmp_path: Path) -> None:
    """F-11."""
    source = write(tmp_path / "source", with_helper(http_files(), ignore_term=True, flood=True))
    async with worker.frontend() as frontend:
        await install(frontend, source)
        started = await start(frontend, "m")
        assert started["success"], started
        longest_s = 0.0
        loop = asyncio.get_running_loop()
        with Yardstick(worker.directory) as yardstick:
            for _ in range(40):
                began_s = loop.time()
                await frontend.ask("models.running")
                longest_s = max(longest_s, loop.time() - began_s)
        print(f"models.running beside a flood: {longest_s * 1000:.0f} ms at worst")
        assert longest_s < yardstick.allows_s(1)
        tree = [started["corral"]["pid"], *helpers(worker)]
        with promised("the stop", within_s=20):
            stopped = await frontend.ask("model.stop", process_key="m#0", within_s=120)
        assert stopped["terminated"], stopped
        assert all(map(is_dead, tree))


async def test_exhausted_and_foreign_ports_are_told_apart_from_free_ones(tmp_path: Path, nats: Nats) -> None:
    """F-32."""
    first = take_ports(2)
    foreign = socket.create_server(("0.0.0.0", first))
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--backend-ports", f"{first}-{first + 1}")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            only = await start(frontend, "a")
            assert only["address"].endswith(f":{first + 1}")
            none = await start(frontend, "b")
            assert (none["success"], none["code"]) == (False, "start_failed")
            assert f"No port is free in {first}-{first + 1}" in none["error"]
            assert call("GET", f"http://{only['address']}/x", key=only["corral"]["token"]).status == 200
    finally:
        foreign.close()
        assert worker.close() == []


async def test_few_descriptors_fail_what_needs_them_and_nothing_else(worker: SingleWorker, tmp_path: Path) -> None:
    """F-31."""
    source = write_http_backend(tmp_path / "source")
    async with worker.frontend() as frontend:
        await install(frontend, source)
        process = psutil.Process(worker.program.pid)
        process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + 2, process.rlimit(resource.RLIMIT_NOFILE)[1]))
        refused = await start(frontend, "m")
        assert not refused["success"], refused
        assert (await frontend.ask("models.running"))["models"] == []
        process.rlimit(resource.RLIMIT_NOFILE, (256, 256))
        assert (await start(frontend, "m"))["success"]


async def test_a_worker_out_of_memory_fails_what_needs_it_and_goes_on(
    worker: SingleWorker, tmp_path: Path, registry: OciRegistry
) -> None:
    """F-31: hardly any memory is left to it, then there is again."""
    registry.push("demo", localai_files(), {"weights": os.urandom(24 << 20)})
    order: dict[str, Any] = {"backend": "demo", "uri": f"{registry.host}/demo:latest"}
    async with worker.frontend() as frontend:
        await install(frontend, write_http_backend(tmp_path / "source"))
        started = await start(frontend, "m")
        assert started["success"], started
        process = psutil.Process(worker.program.pid)
        before = process.rlimit(resource.RLIMIT_AS)
        process.rlimit(resource.RLIMIT_AS, (process.memory_info().vms + (1 << 20), before[1]))
        refused = await frontend.ask("backend.install", **order)
        assert (refused["success"], refused["code"]) == (False, "unavailable")
        assert "out of memory" in refused["error"]
        assert len((await frontend.ask("models.running"))["models"]) == 1
        answer = call("GET", f"http://{started['address']}/x", key=started["corral"]["token"])
        assert answer.status == 200
        process.rlimit(resource.RLIMIT_AS, before)
        again = await frontend.ask("backend.install", **order)
        assert again["success"], again
        assert (await start(frontend, "n"))["success"]


def listening_in(ports: range) -> set[int]:
    found = psutil.net_connections("tcp")
    listening = {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN and one.laddr}
    return listening & set(ports)


async def test_200_starts_and_stops_leave_nothing_behind(tmp_path: Path, nats: Nats) -> None:
    first = take_ports(800)
    ports = range(first, first + 800)
    flags = ("--no-keep-backends", "--backend-ports", f"{ports[0]}-{ports[-1]}")
    worker = SingleWorker(tmp_path, nats, *flags, inside=("env",))
    others = listening_in(ports)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write(tmp_path / "source", tiny_http_files()))
            process = psutil.Process(worker.program.pid)
            warm = await start(frontend, "warm")
            await frontend.ask("model.stop", process_key="warm#0")
            assert warm["success"]
            before = (process.num_fds(), len(process.children()))
            limit = asyncio.Semaphore(8)

            async def churn(number: int) -> None:
                async with limit:
                    started = await start(frontend, f"m{number}")
                    assert started["success"], started
                    stopped = await frontend.ask("model.stop", process_key=f"m{number}#0", force=True)
                    assert stopped["terminated"], stopped

            await asyncio.gather(*map(churn, range(200)))
            assert await frontend.processes() == {}

            async def as_before() -> bool:
                return (process.num_fds(), len(process.children())) <= before

            await wait_until_async(as_before, what=f"descriptors and children are as before: {before}")
            rss = process.memory_info().rss
            print(f"RSS after 200 starts and stops: {rss / (1 << 20):.0f} MiB, {process.num_threads()} threads")
            assert rss < MOST_RSS_BYTES
            assert list((worker.data_dir / "run" / "processes").iterdir()) == []
            assert listening_in(ports) <= others
    finally:
        assert worker.close() == []


def test_a_second_worker_on_the_same_directory_is_refused(worker: SingleWorker) -> None:
    wait_until(lambda: is_listening(worker.port) or None, what="the first one is there")
    first = worker.program
    worker.restart()
    second, worker.program = worker.program, first
    assert second.wait(20) != 0
    assert "already uses" in second.output()


async def test_a_stop_interrupts_a_heartbeat_in_progress_and_leaves_properly(worker: SingleWorker) -> None:
    registrar = worker.registrar
    async with worker.frontend():
        registrar.beats_answered.clear()
        sent = len(registrar.beats)
        await asyncio.to_thread(wait_until, lambda: len(registrar.beats) > sent, what="a beat is under way")
        worker.program.send(signal.SIGTERM)
        assert await asyncio.to_thread(worker.program.wait, 8) == 0
    assert registrar.asked[-2:] == ["drain", "deregister"]
    assert "Traceback" not in worker.program.output()
    assert "deregistration_failed" not in worker.program.output()
