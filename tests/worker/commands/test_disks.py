"""Disks that are full, out of names, or read-only."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.localai_backend import http_files, localai_files, write_http_backend
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.programs import call
from harness.single_worker import SingleWorker
from harness.worker_commands import install, is_dead, start, with_helper, write


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
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends")
    assert worker.data_dir == small_disk
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            registry.push("large", localai_files(), {"weights": os.urandom(30 << 20)})
            large = await frontend.ask("backend.install", backend="large", uri=f"{registry.host}/large:latest")
            assert (large["success"], large["code"]) == (False, "disk_full")
            assert [row["name"] for row in (await frontend.ask("backend.list"))["backends"]] == ["web"]
            assert list((worker.data_dir / "blobs" / "partial").iterdir()) == []
            started = await start(frontend, "m")
            assert started["success"], started
    finally:
        assert worker.close() == []


async def test_logs_on_a_full_disk_hurt_neither_the_backend_nor_the_worker(
    tmp_path: Path, small_disk: Path, nats: Nats
) -> None:
    """F-29: lines are lost and said to be; with room again they are kept again."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends")
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write(tmp_path / "source", with_helper(http_files(), flood=True)))
            started = await start(frontend, "m")
            assert started["success"], started
            url, token = f"http://{started['address']}/x", started["corral"]["token"]
            filler = small_disk / "filler"
            with pytest.raises(OSError, match="No space"):
                _fill(filler)
            for _ in range(20):
                assert (await asyncio.to_thread(call, "GET", url, key=token)).status == 200
                assert len((await frontend.ask("models.running"))["models"]) == 1
            logs = sum(path.stat().st_size for path in (small_disk / "run" / "logs").rglob("*") if path.is_file())
            print(f"the flood keeps {logs >> 20} MiB of logs")
            filler.unlink()
            assert (await start(frontend, "n"))["success"]
            lines = (await frontend.ask("corral.logs", process_key="m#0"))["lines"]
            assert lines
            stopped = await frontend.ask("model.stop", process_key="m#0")
            assert stopped["terminated"], stopped
    finally:
        assert worker.close() == []


async def test_a_disk_out_of_names_or_read_only_leaves_no_half_installed_backend(
    tmp_path: Path, small_disk: Path, nats: Nats, registry: OciRegistry
) -> None:
    """F-30. What runs goes on; when the disk is well again, so is everything."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends")
    many = {f"lib/{number}": b"x" for number in range(3000)}
    registry.push("many", localai_files(), many)
    order: dict[str, Any] = {"backend": "many", "uri": f"{registry.host}/many:latest"}
    try:
        async with worker.frontend() as frontend:
            await install(frontend, write_http_backend(tmp_path / "source"))
            started, other = await start(frontend, "m"), await start(frontend, "o")
            assert started["success"], started

            async def refused(code: str, problem: str) -> None:
                reply = await frontend.ask("backend.install", **order)
                assert (reply["success"], reply["code"]) == (False, code), reply
                assert problem in reply["error"], reply
                rows = {row["name"] for row in (await frontend.ask("backend.list"))["backends"]}
                assert rows == {"web"}
                answer = call("GET", f"http://{started['address']}/x", key=started["corral"]["token"])
                assert answer.status == 200

            used = os.statvfs(small_disk)
            names = used.f_files - used.f_ffree
            _remount(small_disk, f"nr_inodes={names + 1500}")
            await refused("disk_full", "inode")
            _remount(small_disk, "nr_inodes=100000")
            with _read_only(small_disk):
                await refused("disk_fault", "Read-only")
                second = await start(frontend, "n")
                assert (second["success"], "Read-only" in second["error"]) == (False, True), second
                stopped = await frontend.ask("model.stop", process_key="m#0")
                assert stopped["terminated"], stopped
                assert is_dead(started["corral"]["pid"])
                deleted = await frontend.ask("backend.delete", backend="web")
                assert (deleted["success"], deleted["code"]) == (False, "disk_fault"), deleted
                assert (deleted["stopped_process_keys"], is_dead(other["corral"]["pid"])) == (["o#0"], True)
            assert (await frontend.ask("backend.install", **order))["success"]
            started = await start(frontend, "m")
            assert started["success"], started
    finally:
        _remount(small_disk, "nr_inodes=100000")
        assert worker.close() == []


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))


@contextmanager
def _read_only(directory: Path) -> Iterator[None]:
    """From here on nothing below can be changed by its path. What is open stays so: a mount that is written to cannot
    be made read-only, so another one is put on top."""
    subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
    try:
        _remount(directory, "bind,ro")
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def _remount(directory: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(directory)], check=True)
