"""A worker killed, stopped or paused in the middle of its work."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.localai_backend import localai_files, write_http_backend
from harness.nats import Nats
from harness.oci_registry import OciRegistry, Trickle
from harness.programs import call
from harness.single_worker import SingleWorker
from harness.waiting import wait_until, wait_until_async
from harness.worker_commands import install, is_dead, start, until_state


async def test_what_a_killed_worker_left_for_a_moment_is_swept_and_nothing_else(worker: SingleWorker) -> None:
    async with worker.frontend():
        key = (worker.data_dir / "http.token").read_text().strip()
        made = [await asyncio.to_thread(call, "POST", f"{worker.url}/v1/files/temp", key=key, raw=b"") for _ in "12"]
    old, new = (Path(answer.json()["local_path"]) for answer in made)
    worker.program.kill()
    inbox, cache = worker.data_dir / "inbox", worker.data_dir / "cache"
    unique = uuid.uuid4()
    leftovers = [old, inbox / "ephemeral" / "inputs" / "a.wav", cache / "models" / f"w.gguf.part-{unique}",
                 cache / "staging-tmp" / f"localai-staging-{unique}.tmp"]  # fmt: skip
    others = [inbox / "localai-output-of-mine.tmp", inbox / "notes.txt", cache / "models" / "w.gguf"]
    for path in (*leftovers, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1_600_000_000, 1_600_000_000))
    worker.restart()
    wait_until(lambda: not any(path.exists() for path in leftovers), what="what was left is swept", within_s=60)
    assert all(path.exists() for path in (*others, new))


async def test_a_worker_killed_while_it_downloads_goes_on_where_it_was(
    worker: SingleWorker, registry: OciRegistry
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
                    return any(message["corral"]["transfer"]["bytes_done"] > 3 << 20 for message in heard)

                await wait_until_async(half, what="half of it is here")
            worker.program.kill()
            upgrade.cancel()
            await asyncio.gather(upgrade, return_exceptions=True)
        partial = list((worker.data_dir / "blobs" / "partial").glob("*"))
        assert len(partial) == 1
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


async def test_a_worker_that_slept_while_another_took_its_name_stops_what_it_ran(tmp_path: Path, nats: Nats) -> None:
    """F-08: on waking it is told that a newer process speaks for this machine."""
    worker = SingleWorker(tmp_path, nats)
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


MANY_FILES = 4000


def many_files(version: str) -> dict[str, bytes]:
    """Enough to be caught while they are unpacked; each tells which version it is of."""
    return {f"lib/{number // 100}/{number}": version.encode() for number in range(MANY_FILES)}


def read_whole(home: Path) -> str:
    """The version of a backend's directory; fails when it is not wholly of one."""
    version = (home / "VERSION").read_text()
    found = {path.read_text() for path in (home / "lib").rglob("*") if path.is_file()}
    assert found == {version}
    assert sum(path.is_file() for path in (home / "lib").rglob("*")) == MANY_FILES
    return version


def is_unpacking(worker: SingleWorker, _digest: str) -> bool:
    """Several hundred files are in the staging directory."""
    return sum(len(names) for _, _, names in os.walk(worker.data_dir / "staging")) > 300


def is_swapping(worker: SingleWorker, digest: str) -> bool:
    """The new version has got its place, and in a moment the pointer."""
    return (worker.data_dir / "backends" / "demo" / digest.removeprefix("sha256:")).exists()


@pytest.mark.registry
@pytest.mark.parametrize("moment", [is_unpacking, is_swapping])
async def test_a_worker_killed_while_it_installs_leaves_the_old_or_the_new_version(
    worker: SingleWorker, registry: OciRegistry, moment: Callable[[SingleWorker, str], bool]
) -> None:
    """F-05 in extract and swap."""
    uri = f"{registry.host}/demo:latest"
    old = registry.push("demo", localai_files("1"), many_files("1"))
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="demo", uri=uri))["success"]
        started = await frontend.ask("backend.install", backend="demo", model_id="m")
        assert started["success"], started
        new = registry.push("demo", localai_files("2"), many_files("2"))
        upgrade = asyncio.create_task(
            frontend.ask("backend.upgrade", backend="demo", uri=uri, corral={"strategy": "rolling"})
        )
        await asyncio.to_thread(wait_until, lambda: moment(worker, new) or None, what=moment.__name__, every_s=0.0005)
        worker.program.kill()
        upgrade.cancel()
        await asyncio.gather(upgrade, return_exceptions=True)
    home = worker.data_dir / "backends" / "demo"
    between = read_whole(home / "current")
    assert between in "12"
    worker.restart()
    async with worker.frontend() as frontend:
        [row] = (await frontend.ask("backend.list"))["backends"]
        assert row["digest"] == {"1": old, "2": new}[between]
        assert list(home.glob(".*")) == []
        assert (await until_state(frontend, "m#0", "ready"))["pid"] == started["corral"]["pid"]
        done = await frontend.ask("backend.upgrade", backend="demo", uri=uri, corral={"strategy": "rolling"})
        assert (done["success"], done["corral"]["digest"]) == (True, new)
    assert read_whole(home / "current") == "2"
    staged = [path for path in (worker.data_dir / "staging").rglob("*") if path.is_file() and path.name != "lock"]
    assert not [path for path in staged if "lib" in path.parts], "what the killed worker left is swept"


async def read_stream(reply: dict[str, Any]) -> list[bytes]:
    host, _, port = reply["address"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /stream HTTP/1.0\r\nAuthorization: Bearer {reply['corral']['token']}\r\n\r\n".encode())
    lines = (await reader.read()).split(b"\r\n\r\n", 1)[1].splitlines()
    writer.close()
    return lines


@pytest.mark.parametrize("keep", ["--keep-backends", "--no-keep-backends"])
async def test_a_stop_waits_for_the_requests_in_flight(tmp_path: Path, nats: Nats, keep: str) -> None:
    """F-07: it drains, no stream is cut, exit code 0; whether backends go with it or not."""
    worker = SingleWorker(tmp_path, nats, keep)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            started = await start(frontend, "m")
        streams = [asyncio.create_task(read_stream(started)) for _ in range(5)]
        worker.registrar.in_flight = lambda: sum(not stream.done() for stream in streams)
        await asyncio.sleep(0)  # they have begun to connect
        await asyncio.to_thread(
            wait_until,
            lambda: psutil.Process(started["corral"]["pid"]).num_threads() > len(streams) or None,
            what="the backend answers all of them",
        )
        worker.program.send(signal.SIGTERM)
        assert await asyncio.to_thread(worker.program.wait, 30) == 0
        for stream in streams:
            assert await stream == [b"%d" % number for number in range(30)]
        assert is_dead(started["corral"]["pid"]) == (keep == "--no-keep-backends")
    finally:
        worker.close()


LEASE_S = 3.0
PAUSE_S = float(os.environ.get("CORRAL_TEST_PAUSE_S", "8"))
"""Longer than the lease and many heartbeats. Half a minute and five of them were tried too, and showed the same."""


async def test_a_long_pause_changes_nothing_that_was_not_revoked(tmp_path: Path, nats: Nats) -> None:
    """F-08: backends serve meanwhile; on return it answers, reports and beats, and its processes are the same."""
    worker = SingleWorker(tmp_path, nats)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            kept, lost = await start(frontend, "kept", generation=4), await start(frontend, "lost", generation=5)
            worker.registrar.grant = {"leases_s": {"lost#0": LEASE_S}}
            beats = len(worker.registrar.beats)
            await asyncio.to_thread(
                wait_until, lambda: len(worker.registrar.beats) > beats + 1 or None, what="the lease is known"
            )
            worker.program.send(signal.SIGSTOP)
            worker.registrar.grant = {"revoked": {"lost#0": 5}}
            await asyncio.sleep(PAUSE_S)  # the pause is what is tested
            for reply in (kept, lost):
                assert call("GET", f"http://{reply['address']}/x", key=reply["corral"]["token"]).status == 200
            beats = len(worker.registrar.beats)
            async with frontend.listening("corral.report") as reports:
                worker.program.send(signal.SIGCONT)
                began_s = time.monotonic()

                async def told() -> bool:
                    return any([row["process_key"] for row in report["processes"]] == ["kept#0"] for report in reports)

                await wait_until_async(told, what="a report tells that only one is left", within_s=30)
            print(f"after {PAUSE_S:.0f} s of pause: back in order within {time.monotonic() - began_s:.1f} s")
            assert is_dead(lost["corral"]["pid"])
            rows = await frontend.processes()
            assert (rows["kept#0"]["pid"], rows["kept#0"].get("restarts", 0)) == (kept["corral"]["pid"], 0)
            assert len(worker.registrar.beats) > beats
    finally:
        worker.close()
