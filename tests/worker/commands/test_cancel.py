"""A cancel ends an install within five seconds, whatever it is doing, and damages nothing."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.failing_disk import slow_disk
from harness.held_server import HeldServer
from harness.localai_backend import localai_files, write_localai_backend
from harness.machine_speed import promised
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.single_worker import Commander, SingleWorker
from harness.waiting import wait_until


@pytest.fixture
def held() -> Iterator[HeldServer]:
    server = HeldServer()
    yield server
    server.close()


@pytest.fixture
def worker(tmp_path: Path, nats: Nats, held: HeldServer) -> Iterator[SingleWorker]:
    """One whose package index does not answer."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", PIP_INDEX_URL=f"http://{held.address}/simple")
    yield worker
    assert worker.close() == []


@asynccontextmanager
async def cancelled(frontend: Commander, **order: Any) -> AsyncIterator[None]:
    """Gives the order; when the block is left, cancels it and checks what comes of that."""
    async with frontend.listening(f"backend.install.{order['op_id']}.progress") as heard:
        asked = asyncio.create_task(frontend.ask("backend.upgrade", **order))
        yield
        assert not asked.done(), asked.result()
        with promised("the cancel", within_s=5):
            assert await frontend.ask("corral.cancel", op_id=order["op_id"]) == {"cancelled": 1}
            reply = await asked
    assert (reply["success"], reply["code"]) == (False, "cancelled"), reply
    assert heard[-1]["corral"]["last"]
    assert heard[-1]["corral"]["transfer"]["phase"] == "failed"


async def until(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, lambda: condition() or None, what=what, every_s=0.001)


async def test_while_a_gallery_or_the_package_index_is_asked_and_while_it_waits_its_turn(
    worker: SingleWorker, held: HeldServer, tmp_path: Path
) -> None:
    async with worker.frontend() as frontend:
        for name in ("demo", "other"):
            source = write_localai_backend(tmp_path / name)
            assert (await frontend.ask("backend.install", backend=name, uri=f"file://{source}"))["success"]
        before = (await frontend.ask("backend.list"))["backends"]
        galleries = json.dumps([{"url": f"http://{held.address}/index.yaml", "name": "slow"}])
        async with cancelled(frontend, backend="demo", backend_galleries=galleries, op_id="gallery"):
            await until(held.asked.is_set, "the gallery is asked")
        held.asked.clear()
        async with cancelled(frontend, backend="demo", uri="pypi://some-engine==1.0", op_id="environment"):
            await until(held.asked.is_set, "the package index is asked")
        held.asked.clear()
        async with cancelled(frontend, backend="demo", uri=f"http://{held.address}/a.tar.gz", op_id="first"):
            await until(held.asked.is_set, "the first one is under way")
            async with cancelled(frontend, backend="demo", uri=f"file://{tmp_path}/other", op_id="second"):
                await frontend.ask("backend.list")  # by now it has come, and waits for the first
        assert (await frontend.ask("backend.list"))["backends"] == before


@pytest.mark.registry
async def test_while_it_is_unpacked(worker: SingleWorker, registry: OciRegistry) -> None:
    old = registry.push("demo", localai_files("1"))
    uri = f"{registry.host}/demo:latest"
    staging = worker.data_dir / "staging"
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="demo", uri=uri))["success"]
        kept = sorted(path.name for path in (worker.data_dir / "layers").iterdir())
        registry.push("demo", localai_files("2"), {f"lib/{n // 100}/{n}": b"x" for n in range(12_000)})
        async with cancelled(frontend, backend="demo", uri=uri, op_id="unpack", corral={"strategy": "rolling"}):
            await until(lambda: sum(len(names) for _, _, names in os.walk(staging)) > 300, "files are unpacked")
        [row] = (await frontend.ask("backend.list"))["backends"]
        assert row["digest"] == old
        assert sorted(path.name for path in (worker.data_dir / "layers").iterdir()) == kept
        await until(lambda: left_in(worker) == [], "what was begun is removed")


@pytest.mark.registry
async def test_while_a_slow_disk_flushes_it(worker: SingleWorker, registry: OciRegistry, tmp_path: Path) -> None:
    old = registry.push("demo", localai_files("1"))
    order: dict[str, Any] = {
        "backend": "demo",
        "uri": f"{registry.host}/demo:latest",
        "corral": {"strategy": "rolling"},
    }
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", **order))["success"]
        new = registry.push("demo", localai_files("2"))
        with slow_disk(worker.program.pid, tmp_path / "strace", "syncfs") as is_flushing:
            async with cancelled(frontend, op_id="flush", **order):
                await until(is_flushing, "the disk is told to keep it")
        [row] = (await frontend.ask("backend.list"))["backends"]
        assert row["digest"] == old
        await until(lambda: left_in(worker) == [], "what was begun is removed")
        assert (await frontend.ask("backend.upgrade", op_id="again", **order))["success"]
        [row] = (await frontend.ask("backend.list"))["backends"]
        assert row["digest"] == new


def left_in(worker: SingleWorker) -> list[Path]:
    return [path for path in (worker.data_dir / "staging").rglob("*") if path.is_file() and path.name != ".lock"]
