"""F-30: a disk that fails to keep what was written. Whatever needed it fails, with the reason; nothing that is
installed or noted is damaged; and when the disk is well again, so is everything."""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.failing_disk import ALWAYS, failing_disk, inject, need_strace
from harness.localai_backend import localai_files, write_http_backend
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.programs import call
from harness.single_worker import Commander, SingleWorker
from harness.tiny_model import Shelf
from harness.worker_commands import install, start

WEIGHTS = bytes(range(256)) * 4096

# In the order in which an install comes to them. Each is one thread's doing, so they can be counted.
STEPS = {
    "its description": ("fsync", "1"),
    "its files": ("syncfs", "1"),
    "its place": ("fsync", "2"),
    "the pointer": ("fsync", "3"),
    "anything": ("fsync,fdatasync,syncfs", ALWAYS),
}


def state_of(home: Path) -> dict[str, Any]:
    """Everything below a backend's directory that tells which versions there are, and which is current."""
    current = home / "current"
    return {
        "current": os.readlink(current) if current.is_symlink() else None,
        "versions": sorted(path.name for path in home.iterdir() if path.name != "current") if home.is_dir() else [],
        "VERSION": (current / "VERSION").read_text() if (current / "VERSION").exists() else None,
    }


def stored(worker: SingleWorker) -> list[str]:
    """What the next install would find here, and take without fetching or unpacking it again."""
    places = (worker.data_dir / "layers", worker.data_dir / "blobs" / "sha256", worker.data_dir / "blobs" / "partial")
    return [path.name for place in places for path in sorted(place.iterdir()) if not path.name.startswith(".")]


def check_notes(worker: SingleWorker) -> None:
    """No file of the worker's own is half-written, and none of its drafts is left lying around."""
    for path in worker.data_dir.glob("*.json"):
        json.loads(path.read_text())
    for path in (worker.data_dir / "run" / "processes").glob("*/record.json"):
        json.loads(path.read_text())
    assert [path.name for path in worker.data_dir.iterdir() if path.name.startswith(".")] == []
    assert list((worker.data_dir / "backends").rglob(".*")) == []


@pytest.mark.registry
@pytest.mark.parametrize("step", STEPS)
async def test_an_install_or_upgrade_that_cannot_be_flushed_changes_nothing(
    worker: SingleWorker, registry: OciRegistry, tmp_path: Path, step: str
) -> None:
    calls, when = STEPS[step]
    registry.push("new", localai_files("1"))
    registry.push("demo", localai_files("1"))
    homes = {name: worker.data_dir / "backends" / name for name in ("demo", "new")}
    orders: dict[str, dict[str, Any]] = {
        name: {"backend": name, "uri": f"{registry.host}/{name}:latest"} for name in homes
    }
    async with worker.frontend() as frontend:
        await install(frontend, write_http_backend(tmp_path / "source"))
        assert (await frontend.ask("backend.install", **orders["demo"]))["success"]
        started = await start(frontend, "m")
        assert started["success"], started
        registry.push("demo", localai_files("2"))
        before = {name: state_of(home) for name, home in homes.items()}
        assert before["demo"]["VERSION"] == "1"
        rows, kept = await listed(frontend), stored(worker)
        rolling = {"strategy": "rolling"}
        for order in (
            frontend.ask("backend.install", **orders["new"]),
            frontend.ask("backend.upgrade", **orders["demo"], corral=rolling),
        ):
            with failing_disk(worker.program.pid, tmp_path / "strace", *calls.split(","), when=when) as disk:
                reply = await order
            assert (reply["success"], reply["code"]) == (False, "disk_fault"), reply
            assert "Input/output error" in reply["error"]
            assert disk.failures, "the disk failed where it was meant to"
            assert {name: state_of(home) for name, home in homes.items()} == before
            assert await listed(frontend) == rows
            if step in ("its files", "anything"):
                assert stored(worker) == kept, "what may be lost is not built upon"
            check_notes(worker)
        assert call("GET", f"http://{started['address']}/x", key=started["corral"]["token"]).status == 200
        installed = await frontend.ask("backend.install", **orders["new"])
        assert installed["success"], installed
        upgraded = await frontend.ask("backend.upgrade", **orders["demo"], corral=rolling)
        assert upgraded["success"], upgraded
        assert (state_of(homes["demo"])["VERSION"], state_of(homes["new"])["VERSION"]) == ("2", "1")


async def listed(frontend: Commander) -> dict[str, str]:
    return {row["name"]: row["digest"] for row in (await frontend.ask("backend.list"))["backends"]}


async def test_an_order_that_cannot_be_noted_is_not_carried_out(worker: SingleWorker, tmp_path: Path) -> None:
    """And when it can be, it is on disk before anything is done: also after a kill, an older one is refused."""
    source = write_http_backend(tmp_path / "source")
    order: dict[str, Any] = {"backend": "web", "uri": f"file://{source}", "corral": {"generation": 7}}
    older: dict[str, Any] = {**order, "corral": {"generation": 6}}
    async with worker.frontend() as frontend:
        with failing_disk(worker.program.pid, tmp_path / "strace") as disk:
            for _ in range(2):  # the second time it is no news, but still not on disk
                reply = await frontend.ask("backend.install", **order)
                assert (reply["success"], reply["code"]) == (False, "unavailable"), reply
                assert "Input/output error" in reply["error"]
            assert len(disk.failures) >= 2
            assert (await frontend.ask("backend.list"))["backends"] is None
            assert (await frontend.ask("models.running"))["models"] == []
            worker.program.kill()
    check_notes(worker)
    worker.restart()
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", **order))["success"]
        worker.program.kill()
    worker.restart()
    async with worker.frontend() as frontend:
        outdated = await frontend.ask("backend.install", **older)
        assert (outdated["success"], outdated["code"]) == (False, "outdated_command")
        assert (await start(frontend, "m"))["success"]


async def test_what_needs_no_disk_goes_on_while_it_fails(worker: SingleWorker, tmp_path: Path) -> None:
    """Starts, crashes, stops and lists; what is noted about processes only matters until the next boot."""
    async with worker.frontend() as frontend:
        await install(frontend, write_http_backend(tmp_path / "source"))
        with failing_disk(worker.program.pid, tmp_path / "strace") as disk:
            started = await start(frontend, "m")
            assert started["success"], started
            assert call("GET", f"http://{started['address']}/x", key=started["corral"]["token"]).status == 200
            check_notes(worker)
            refused = await start(frontend, "m", generation=3)
            assert (refused["success"], refused["code"]) == (False, "unavailable")
            stopped = await frontend.ask("model.stop", process_key="m#0")
            assert stopped["terminated"], stopped
            assert disk.failures
        assert (await start(frontend, "m", generation=3))["success"]


async def test_weights_that_cannot_be_flushed_are_not_placed_and_fetched_again(
    worker: SingleWorker, tmp_path: Path
) -> None:
    shelf = Shelf(WEIGHTS)
    file = {"filename": "tiny/weights.gguf", "uri": shelf.url, "sha256": hashlib.sha256(WEIGHTS).hexdigest()}
    order: dict[str, Any] = {"model": "tiny", "files": [file], "paths": [file["filename"]]}
    try:
        async with worker.frontend() as frontend:
            with failing_disk(worker.program.pid, tmp_path / "strace"):
                reply = await frontend.ask("corral.model.fetch", **order)
            assert (reply["success"], reply["code"]) == (False, "disk_fault"), reply
            assert list((worker.data_dir / "models").rglob("*.gguf")) == []
            assert stored(worker) == []
            assert (await frontend.ask("corral.model.fetch", **order))["success"]
            assert shelf.gets == 2
    finally:
        shelf.close()


async def test_an_uploaded_file_that_cannot_be_kept_is_not_there(worker: SingleWorker, tmp_path: Path) -> None:
    async with worker.frontend() as frontend:
        token = (await frontend.ask("corral.report.now"))["http_token"]
        url = f"{worker.url}/v1/files/models/weights.bin"
        with failing_disk(worker.program.pid, tmp_path / "strace"):
            answer = await asyncio.to_thread(call, "PUT", url, key=token, raw=b"x" * 5000)
        assert (answer.status, "Input/output error" in answer.body.decode()) == (507, True)
        assert list((worker.data_dir / "models").iterdir()) == []
        assert (await asyncio.to_thread(call, "PUT", url, key=token, raw=b"x" * 5000)).status == 200


def test_a_worker_that_cannot_keep_its_identity_says_so_and_is_well_with_the_disk(tmp_path: Path, nats: Nats) -> None:
    """From its very first step; nothing it leaves keeps it from starting later."""
    inside = [need_strace(), "-f", "--seccomp-bpf", "-o", str(tmp_path / "strace"), *inject(("fsync",), ALWAYS)]
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", inside=inside)
    try:
        assert worker.program.wait(60) == 3
        output = worker.program.output()
        if "not permitted" in output:
            pytest.skip("no process may be traced here")
        assert f"cannot write to {worker.data_dir}: Input/output error" in output
        assert "Traceback" not in output
        assert not (worker.data_dir / "identity.json").exists()
        worker.inside = ()
        worker.restart()
        worker.program.wait_for_output("worker.joined")
        assert json.loads((worker.data_dir / "identity.json").read_text())["node_key"]
    finally:
        assert worker.close() == []
