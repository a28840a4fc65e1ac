"""What a report says about backends and processes, from a real worker."""

from pathlib import Path
from typing import Any

import pytest

from harness.localai_backend import http_files, write_http_backend
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.single_worker import Commander, SingleWorker
from harness.waiting import wait_until_async

START = {"start": {"model": "/weights"}}


async def order(frontend: Commander, verb: str, generation: int, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = await frontend.ask(verb, **fields, corral={"generation": generation, **START})
    assert reply["success"], reply
    return reply


async def test_each_process_is_reported_with_the_generation_of_the_last_intent_that_requested_it(
    worker: SingleWorker, tmp_path: Path
) -> None:
    source = write_http_backend(tmp_path / "source")
    wanted: dict[str, Any] = {"backend": "web", "uri": f"file://{source}", "model_id": "m"}
    async with worker.frontend() as frontend:
        first = await order(frontend, "backend.install", 7, **wanted)
        row = (await frontend.processes())["m#0"]
        assert (row["generation"], row["state"], row["backend"]) == (7, "ready", "web")
        assert (row["address"], row["digest"]) == (first["address"], first["corral"]["digest"])
        again = await order(frontend, "backend.install", 9, **wanted)
        assert again["corral"]["pid"] == first["corral"]["pid"]
        other: dict[str, Any] = {**wanted, "replica_index": 1}
        await frontend.ask("backend.install", **other, corral=START)
        rows = await frontend.processes()
        assert rows["m#0"]["generation"] == 9
        assert "generation" not in rows["m#1"]


async def test_free_memory_is_reported_before_the_end_of_a_process(tmp_path: Path, nats: Nats) -> None:
    """Whoever is told so places the next one at once, by figures that must not be those from before."""
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--heartbeat-interval", "600s")
    try:
        wanted: dict[str, Any] = {
            "backend": "web",
            "uri": f"file://{write_http_backend(tmp_path / 'source')}",
            "model_id": "m",
        }
        async with worker.frontend() as frontend:
            await order(frontend, "backend.install", 3, **wanted)
            before = len(worker.registrar.beats)
            stopped = await frontend.ask("model.stop", process_key="m#0")
            assert (stopped["terminated"], len(worker.registrar.beats)) == (True, before + 1)
            worker.registrar.beats_answered.clear()
            await order(frontend, "backend.install", 4, **wanted)
            stopped = await frontend.ask("model.stop", process_key="m#0")
            assert stopped["terminated"], "a frontend that does not answer delays it, and does not keep it"
            worker.registrar.beats_answered.set()
    finally:
        worker.close()


async def test_generations_outlive_the_worker(tmp_path: Path, nats: Nats) -> None:
    worker = SingleWorker(tmp_path, nats)
    try:
        wanted: dict[str, Any] = {
            "backend": "web",
            "uri": f"file://{write_http_backend(tmp_path / 'source')}",
            "model_id": "m",
        }
        async with worker.frontend() as frontend:
            first = await order(frontend, "backend.install", 3, **wanted)
            await order(frontend, "backend.install", 4, **wanted)
        worker.program.kill()
        worker.restart()
        async with worker.frontend() as frontend:
            row = (await frontend.processes())["m#0"]
            assert (row["pid"], row["generation"]) == (first["corral"]["pid"], 4)
    finally:
        worker.close()


@pytest.mark.registry
async def test_the_backend_table_is_complete_and_shows_deletes_that_are_done(
    worker: SingleWorker, registry: OciRegistry
) -> None:
    uri = f"{registry.host}/web:latest"
    first = registry.push("web", http_files("1"))
    async with worker.frontend() as frontend, frontend.listening("corral.report") as reports:
        await order(frontend, "backend.install", 1, backend="web", uri=uri, alias="other")
        second = registry.push("web", http_files("2"))
        await order(frontend, "backend.upgrade", 2, backend="web", uri=uri, alias="other")
        report = await frontend.ask("corral.report.now")
        [row] = report["backends"]
        assert (row["name"], row["uri"], row["alias"], row["is_meta"]) == ("web", uri, "other", False)
        assert (row["digest"], row["versions"], row["generation"]) == (second, [second, first], 2)
        assert row["installed_at"]
        assert (report["epoch"], report["applied"]) == (1, {"web": 2})
        await order(frontend, "backend.delete", 3, backend="web")
        await order(frontend, "backend.delete", 4, backend="never-there")

        async def both_deleted() -> bool:
            return bool(reports) and reports[-1].get("applied") == {"web": 3, "never-there": 4}

        await wait_until_async(both_deleted, what="a published report tells both deletes")
        assert reports[-1]["backends"] == []
