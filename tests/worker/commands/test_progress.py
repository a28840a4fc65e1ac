"""Progress, cancel and reports over a slow line."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.localai_backend import localai_files, write_http_backend
from harness.machine_speed import promised
from harness.oci_registry import OciRegistry, Trickle
from harness.single_worker import SingleWorker
from harness.waiting import wait_until_async

pytestmark = pytest.mark.registry


@pytest.fixture
def slow_line(registry: OciRegistry) -> Iterator[Trickle]:
    trickle = Trickle(registry.port, bytes_per_s=1 << 20)
    yield trickle
    trickle.stop()


def check_progress(messages: list[dict[str, Any]], op: str) -> None:
    assert messages
    assert {message["op_id"] for message in messages} == {op}
    sequences = [message["corral"]["sequence"] for message in messages]
    assert sequences == sorted(set(sequences))
    percentages = [message["percentage"] for message in messages]
    assert percentages == sorted(percentages)
    assert [message["corral"].get("last", False) for message in messages] == [False] * (len(messages) - 1) + [True]


async def test_progress_is_debounced_monotone_over_layers_and_ends_with_a_last_one(
    worker: SingleWorker, registry: OciRegistry, slow_line: Trickle
) -> None:
    layers = [{f"weights-{number}": os.urandom(1 << 20)} for number in range(3)]
    registry.push("demo", localai_files("1"), *layers)
    uri = f"127.0.0.1:{slow_line.port}/demo:latest"
    async with worker.frontend() as frontend, frontend.listening("backend.install.*.progress") as heard:
        began_s = time.monotonic()
        assert (await frontend.ask("backend.install", backend="demo", uri=uri, op_id="op-1"))["success"]
        took_s = time.monotonic() - began_s
        check_progress(heard, "op-1")
        assert len(heard) <= took_s / 0.25 + 3
        assert len(heard) >= 4
        assert heard[-1]["corral"]["transfer"]["phase"] == "ready"
        assert {"current", "total", "phase"} <= set(heard[-2])
        heard.clear()
        registry.push("demo", localai_files("2"), {"more": os.urandom(1 << 20)})
        assert (await frontend.ask("backend.upgrade", backend="demo", uri=uri, op_id="op-2"))["success"]
        check_progress(heard, "op-2")
        heard.clear()
        assert (await frontend.ask("backend.upgrade", backend="demo", uri=uri))["success"]
        assert heard == [], "silent without an operation id"
        failed = await frontend.ask("backend.install", backend="x", uri=f"{registry.host}/none:latest", op_id="op-3")
        assert not failed["success"]
        check_progress(heard, "op-3")
        assert heard[-1]["corral"]["transfer"]["phase"] == "failed"
        assert heard[-1]["corral"]["error"] == failed["error"]
        heard.clear()
        nameless = await frontend.ask("backend.install", op_id="op-4")
        assert not nameless["success"]
        check_progress(heard, "op-4")
        for op in ("op-5", "op-6"):  # the second time it runs already
            heard.clear()
            assert (await frontend.ask("backend.install", backend="demo", model_id="m", op_id=op))["success"]
            check_progress(heard, op)


async def test_a_cancel_reaches_a_download_within_five_seconds_and_damages_nothing(
    worker: SingleWorker, registry: OciRegistry, slow_line: Trickle
) -> None:
    uri = f"127.0.0.1:{slow_line.port}/demo:latest"
    old = registry.push("demo", localai_files("1"))
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="demo", uri=uri))["success"]
        running = await frontend.ask("backend.install", backend="demo", model_id="m")
        registry.push("demo", localai_files("2"), {"weights": os.urandom(30 << 20)})
        async with frontend.listening("backend.install.op-9.progress") as heard:
            upgrade = asyncio.create_task(
                frontend.ask("backend.upgrade", backend="demo", uri=uri, op_id="op-9", corral={"strategy": "rolling"})
            )

            async def downloading() -> bool:
                return any(message["corral"]["transfer"]["bytes_done"] > 100_000 for message in heard)

            await wait_until_async(downloading, what="bytes arrive")
            slow_line.bytes_per_s = 20_000  # minutes to go
            with promised("a cancel", within_s=5, directory=worker.directory):
                assert (await frontend.ask("corral.cancel", op_id="op-9")) == {"cancelled": 1}
                reply = await upgrade
        assert (reply["success"], reply["code"]) == (False, "cancelled")
        assert heard[-1]["corral"]["last"]
        [row] = (await frontend.ask("backend.list"))["backends"]
        assert row["digest"] == old
        assert (await frontend.processes())["m#0"]["pid"] == running["corral"]["pid"]
        blobs = worker.data_dir / "blobs" / "partial"
        assert list(blobs.iterdir()) == []


async def test_what_was_downloaded_is_kept_where_a_cancel_says_so_and_the_next_request_continues_from_there(
    worker: SingleWorker, registry: OciRegistry, slow_line: Trickle
) -> None:
    uri = f"127.0.0.1:{slow_line.port}/demo:latest"
    registry.push("demo", localai_files("1"), {"weights": os.urandom(4 << 20)})
    partial = worker.data_dir / "blobs" / "partial"

    async def kept() -> int:
        return max((path.stat().st_size for path in partial.iterdir()), default=0)

    async def has_begun() -> bool:
        return await kept() > 500_000

    async with worker.frontend() as frontend:
        install = asyncio.create_task(frontend.ask("backend.install", backend="demo", uri=uri, op_id="op-1"))
        await wait_until_async(has_begun, what="bytes arrive")
        slow_line.bytes_per_s = 20_000  # minutes to go
        assert (await frontend.ask("corral.cancel", op_id="op-1", keep=True)) == {"cancelled": 1}
        assert (await install)["code"] == "cancelled"
        left = await kept()
        assert left > 500_000
        slow_line.bytes_per_s = 50 << 20
        slow_line.asked.clear()
        assert (await frontend.ask("backend.install", backend="demo", uri=uri, op_id="op-1"))["success"]
    asked = b"".join(slow_line.asked).lower()
    assert f"range: bytes={left}-".encode() in asked, "only what was missing was fetched"


async def test_reports_show_every_change_with_epoch_generation_and_use(worker: SingleWorker, tmp_path: Path) -> None:
    source = write_http_backend(tmp_path / "source")
    async with worker.frontend() as frontend, frontend.listening("corral.report") as reports:
        start = {"start": {"model": "/weights"}, "generation": 3}
        started = await frontend.ask(
            "backend.install", backend="web", uri=f"file://{source}", model_id="m", corral=start
        )
        assert started["success"], started

        async def ready() -> dict[str, Any] | None:
            for report in reports:
                for process in report["processes"]:
                    if process["state"] == "ready" and process.get("memory_bytes"):
                        return report
            return None

        report = await wait_until_async(ready, what="a report of the ready process, with its memory")
        [process] = report["processes"]
        [backend] = report["backends"]
        assert (report["epoch"], backend["generation"], process["process_key"]) == (1, 3, "m#0")
        assert process["address"] == started["address"]
        assert process["memory_bytes"] > 1 << 20
        assert process["cpu_s"] >= 0
        sequences = [report["sequence"] for report in reports]
        assert sequences == sorted(set(sequences))
        published = str(reports)
        asked = await frontend.ask("corral.report.now")
        assert asked["processes"][0]["token"] == started["corral"]["token"]
        for secret in (asked["processes"][0]["token"], asked["http_token"], asked["blob_token"]):
            assert secret
            assert secret not in published
        assert await frontend.wait_for_log("m#0", "serving") == ["serving 1"]
