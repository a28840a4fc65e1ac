"""What goes wrong on a machine, and what the worker makes of it."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.worker.processes.records import read_start_ticks
from harness.fleet_worker import Commander, FleetWorker
from harness.localai_backend import http_files, localai_files, write_http_backend
from harness.nats import Nats
from harness.oci_registry import OciRegistry, Trickle
from harness.programs import call
from harness.waiting import is_listening, wait_until, wait_until_async

START = {"start": {"model": "/weights"}}
MOST_RSS_BYTES = 90 << 20


async def install(frontend: Commander, source: Path, name: str = "web") -> None:
    reply = await frontend.ask("backend.install", backend=name, uri=f"file://{source}")
    assert reply["success"], reply


async def start(frontend: Commander, model: str, name: str = "web", **extras: Any) -> dict[str, Any]:
    fields = {**START, **extras}
    reply: dict[str, Any] = await frontend.ask("backend.install", backend=name, model_id=model, corral=fields)
    return reply


async def until_state(frontend: Commander, key: str, state: str, *, within_s: float = 20.0) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        process = (await frontend.processes()).get(key)
        return process if process is not None and process["state"] == state else None

    return await wait_until_async(look, what=f"{key} is {state}", within_s=within_s)


def with_helper(files: dict[str, bytes], *, ignore_term: bool = False, flood: bool = False) -> dict[str, bytes]:
    """A server that leaves a helper in a session of its own, with no parent to be found by."""
    before = (
        "import os, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        open(os.path.join(os.environ['HOME'], 'helper'), 'w').write(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    if ignore_term:
        before += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    if flood:
        before += (
            "import threading\n"
            "def pour():\n"
            "    while True:\n"
            "        os.write(1, b'x' * 200 + b'\\n')\n"
            "threading.Thread(target=pour, daemon=True).start()\n"
        )
    return {**files, "server.py": before.encode() + files["server.py"]}


def write(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir()
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def helpers(worker: FleetWorker) -> list[int]:
    return [int(path.read_text()) for path in (worker.data_dir / "run" / "processes").glob("*/home/helper")]


def is_dead(pid: int) -> bool:
    return read_start_ticks(pid) is None


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_backends_and_their_helpers_outlive_the_worker_and_are_taken_over(
    tmp_path: Path, nats: Nats, how: str
) -> None:
    """F-06, F-07: `kill -9` and an orderly stop; the streams a backend serves are nobody's business but its own."""
    worker = FleetWorker(tmp_path, nats)
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
    worker = FleetWorker(tmp_path, nats)
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
    worker: FleetWorker, tmp_path: Path
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


async def test_a_backend_that_will_not_go_and_floods_is_gone_within_20_s(worker: FleetWorker, tmp_path: Path) -> None:
    """F-11."""
    source = write(tmp_path / "source", with_helper(http_files(), ignore_term=True, flood=True))
    async with worker.frontend() as frontend:
        await install(frontend, source)
        started = await start(frontend, "m")
        assert started["success"], started
        longest_s = 0.0
        loop = asyncio.get_running_loop()
        for _ in range(40):
            began_s = loop.time()
            await frontend.ask("models.running")
            longest_s = max(longest_s, loop.time() - began_s)
        print(f"models.running beside a flood: {longest_s * 1000:.0f} ms at worst")
        assert longest_s < 1.0
        tree = [started["corral"]["pid"], *helpers(worker)]
        began_s = loop.time()
        stopped = await frontend.ask("model.stop", process_key="m#0")
        print(f"the stop took {loop.time() - began_s:.1f} s")
        assert stopped["terminated"], stopped
        assert loop.time() - began_s < 20
        assert all(map(is_dead, tree))


async def test_exhausted_and_foreign_ports_are_told_apart_from_free_ones(tmp_path: Path, nats: Nats) -> None:
    """F-32."""
    first = 18900
    foreign = socket.create_server(("0.0.0.0", first))
    worker = FleetWorker(tmp_path, nats, "--no-keep-backends", "--backend-ports", f"{first}-{first + 1}")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            only = await start(frontend, "a")
            assert only["address"].endswith(f":{first + 1}")
            none = await start(frontend, "b")
            assert (none["success"], none["code"]) == (False, "start_failed")
            assert f"No port is left in {first}-{first + 1}" in none["error"]
            assert call("GET", f"http://{only['address']}/x", key=only["corral"]["token"]).status == 200
    finally:
        foreign.close()
        assert worker.close() == []


async def test_a_worker_killed_while_it_downloads_goes_on_where_it_was(
    worker: FleetWorker, registry: OciRegistry
) -> None:
    """F-05: the old version is whole in between."""
    old = registry.push("demo", localai_files("1"))
    line = Trickle(registry.port, bytes_per_s=4 << 20)
    uri = f"127.0.0.1:{line.port}/demo:latest"
    try:
        async with worker.frontend() as frontend:
            assert (await frontend.ask("backend.install", backend="demo", uri=uri))["success"]
            new = registry.push("demo", localai_files("2"), {"weights": os.urandom(8 << 20)})
            async with frontend.listening("backend.install.op.progress") as heard:
                upgrade = asyncio.create_task(frontend.ask("backend.upgrade", backend="demo", uri=uri, op_id="op"))

                async def half() -> bool:
                    return any(message["corral"]["bytes_done"] > 3 << 20 for message in heard)

                await wait_until_async(half, what="half of it is here")
            worker.program.kill()
            upgrade.cancel()
            await asyncio.gather(upgrade, return_exceptions=True)
        [partial] = (worker.data_dir / "blobs" / "partial").glob("*")
        assert partial
        worker.restart()
        async with worker.frontend() as frontend:
            [row] = (await frontend.ask("backend.list"))["backends"]
            assert row["digest"] == old
            async with frontend.listening("backend.install.again.progress") as heard:
                done = await frontend.ask("backend.upgrade", backend="demo", uri=uri, op_id="again")
            assert done["success"], done
            assert done["corral"]["digest"] == new
    finally:
        line.stop()


async def test_few_descriptors_fail_what_needs_them_and_nothing_else(worker: FleetWorker, tmp_path: Path) -> None:
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


async def test_200_starts_and_stops_leave_nothing_behind(tmp_path: Path, nats: Nats) -> None:
    worker = FleetWorker(tmp_path, nats, "--no-keep-backends", "--backend-ports", "18000-18799")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
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
            assert worker.markers() == []
            assert not any(is_listening(port) for port in range(18000, 18210))
    finally:
        assert worker.close() == []


async def test_a_backend_sees_nothing_of_the_worker_and_options_stay_data(tmp_path: Path, nats: Nats) -> None:
    """S-42, S-43, S-44."""
    worker = FleetWorker(tmp_path, nats, "--no-keep-backends", HF_TOKEN="canary-1", AWS_SECRET_ACCESS_KEY="canary-2")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            nasty = "x --token=y; touch /tmp/corral-was-here $(id) LD_PRELOAD=/x"
            options = {"model": "/weights", "options": {"flavour": nasty}}
            started = await start(frontend, "m", start=options)
            assert started["success"], started
            url, token = f"http://{started['address']}", started["corral"]["token"]
            seen = call("GET", f"{url}/environment", key=token).json()
            everything = str(seen)
            for secret in ("canary-1", "canary-2", "test-registration-token", str(worker.registrar.url)):
                assert secret not in everything
            assert f"--flavour={nasty}" in seen["argv"], "one argument, untouched"
            assert token not in str(seen["argv"])
            assert not [
                name for name in seen["environ"] if name.startswith(("CORRAL_TOKEN", "LOCALAI_", "HF_", "AWS_"))
            ]
            opened = [name for name in seen["fds"] if name.startswith("/") and not name.startswith(("/proc", "/dev"))]
            assert opened == []
            assert call("GET", f"{url}/x", key="guess").status == 401
            for bad in (
                {"model": "/weights", "options": {"unknown": "1"}},
                {"model": "/weights", "options": {"flavour": "a\0b"}},
                {"model": "{token}"},
            ):
                refused = await start(frontend, "n", start=bad)
                assert not refused["success"], bad
    finally:
        assert worker.close() == []


def test_a_second_worker_on_the_same_directory_is_refused(worker: FleetWorker) -> None:
    wait_until(lambda: is_listening(worker.port) or None, what="the first one is there")
    first = worker.program
    worker.restart()
    second, worker.program = worker.program, first
    assert second.wait(20) != 0
    assert "already uses" in second.output()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The data directory of the worker, on a small filesystem of its own."""
    directory = tmp_path / "worker"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320m", "corral-test", str(directory)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no filesystem can be mounted here: {made.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


async def test_a_full_disk_fails_the_one_install_and_leaves_the_rest_usable(
    tmp_path: Path, small_disk: Path, nats: Nats, registry: OciRegistry
) -> None:
    """F-29."""
    worker = FleetWorker(tmp_path, nats, "--no-keep-backends")
    assert worker.data_dir == small_disk
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            registry.push("large", localai_files(), {"weights": os.urandom(80 << 20)})
            large = await frontend.ask("backend.install", backend="large", uri=f"{registry.host}/large:latest")
            assert (large["success"], large["code"]) == (False, "disk_full")
            assert [row["name"] for row in (await frontend.ask("backend.list"))["backends"]] == ["web"]
            assert list((worker.data_dir / "blobs" / "partial").iterdir()) == []
            started = await start(frontend, "m")
            assert started["success"], started
    finally:
        assert worker.close() == []


async def test_a_worker_that_slept_while_another_took_its_name_stops_what_it_ran(tmp_path: Path, nats: Nats) -> None:
    """F-08: on waking it is told that a newer process speaks for this machine."""
    worker = FleetWorker(tmp_path, nats)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            started = await start(frontend, "m")
        worker.program.send(signal.SIGSTOP)
        worker.registrar.fenced = True
        assert call("GET", f"http://{started['address']}/x", key=started["corral"]["token"]).status == 200
        worker.program.send(signal.SIGCONT)
        assert await asyncio.to_thread(worker.program.wait, 30) == 1
        assert is_dead(started["corral"]["pid"])
    finally:
        assert worker.close() == []


async def test_a_stop_cuts_a_beat_that_is_under_way_and_leaves_properly(worker: FleetWorker) -> None:
    registrar = worker.registrar
    async with worker.frontend():
        registrar.beats_answered.clear()
        sent = len(registrar.beats)
        await asyncio.to_thread(wait_until, lambda: len(registrar.beats) > sent, what="a beat is under way")
        worker.program.send(signal.SIGTERM)
        assert await asyncio.to_thread(worker.program.wait, 8) == 0
    assert registrar.asked[-2:] == ["drain", "deregister"]
    assert "Traceback" not in worker.program.output()
    assert "left_without_goodbye" not in worker.program.output()
