"""`staging.<model>.progress` on a real bus: what other frontends hear of our loads, and we of theirs."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bus.conftest import Connect, connect
from corral.bus.client import Bus, BusMessage
from corral.controller.loads.localai import EXPIRES_S, RemoteStaging
from harness.clocks import HeldClock
from harness.cluster import Cluster
from harness.gated_files import GatedFiles
from harness.localai_backend import write_localai_backend
from harness.nats import Nats
from harness.waiting import wait_until

__all__ = ["connect"]

MODEL = "big horse.1"
SUBJECT = "staging.big-horse-1.progress"
STATUS = {
    "model_id": MODEL, "node_name": "far", "file_name": "model.gguf", "bytes_sent": 43, "total_bytes": 100,
    "progress": 43, "speed": "98.1 MB/s", "file_index": 1, "total_files": 2,
    "message": "model.gguf (1.0 GB / 2.3 GB, 98.1 MB/s)", "started_at": "2026-08-01T10:12:00Z",
}  # fmt: skip


@pytest.fixture
async def cluster(tmp_path: Path, nats: Nats) -> AsyncIterator[Cluster]:
    """On one database: what is told here is not in it."""
    running = Cluster(tmp_path, nats)
    write_localai_backend(tmp_path / "system" / "echo")
    await asyncio.to_thread(running.start_frontend)
    yield running
    await asyncio.to_thread(running.stop)


@dataclass
class Heard:
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, message: BusMessage) -> None:
        assert message.subject == SUBJECT
        self.messages.append(json.loads(message.data))


async def test_what_a_frontend_stages_is_published_in_localais_form(cluster: Cluster, connect: Connect) -> None:
    bus, heard = await connect("other"), Heard()
    await bus.serve("staging.*.progress", heard.take, concurrency=1)
    web = GatedFiles({"model.gguf": b"w" * 4000, "eyes.gguf": b"e" * 1000})
    names = {"horse/model.gguf": "model.gguf", "horse/eyes.gguf": "eyes.gguf"}
    listed = ", ".join(web.download(filename, name) for filename, name in names.items())

    def load() -> None:
        admin = cluster.admin()
        cluster.start_worker("w1", "--system-backends-dir", str(cluster.directory / "system"))
        text = f"name: {MODEL}\nbackend: echo\nparameters: {{model: horse/model.gguf}}\nmmproj: horse/eyes.gguf\n"
        added = admin.call("POST", "/api/models", body={"config": f"{text}download_files: [{listed}]\n"})
        assert added.status == 201, added.body
        assert admin.call("POST", "/api/models/big%20horse.1/load").status == 202
        wait_until(
            lambda: sum(one["status"]["file_index"] == 1 for one in heard.messages) > 2,
            what="bytes of the first file are told, again and again",
            within_s=60,
        )
        web.let_go("model.gguf")
        wait_until(lambda: heard.messages[-1]["status"]["file_index"] == 2, what="the second file is told", within_s=60)
        web.let_go("eyes.gguf")
        wait_until(lambda: heard.messages[-1]["done"], what="its end is told", within_s=60)

    began_s = time.monotonic()
    try:
        await asyncio.to_thread(load)
    finally:
        await asyncio.to_thread(web.stop)
    took_s = time.monotonic() - began_s
    *ticks, last = heard.messages
    assert len(ticks) <= 2 + len(web.files) + took_s, "bytes are told once a second"
    assert last == {"model_id": MODEL, "done": True}
    assert {(one["model_id"], one["done"], one["status"]["node_name"]) for one in ticks} == {(MODEL, False, "w1")}
    assert all(one["status"].keys() == STATUS.keys() for one in ticks)
    began, *rest = (one["status"] for one in ticks)
    assert (began["bytes_sent"], began["total_files"]) == (0, 2)
    assert {(one["file_index"], one["file_name"]) for one in rest} >= {(1, "model.gguf"), (2, "eyes.gguf")}
    assert all(one["total_bytes"] == 5000 and one["progress"] == one["bytes_sent"] // 50 for one in rest)
    assert rest[-1]["message"].startswith("eyes.gguf (")
    assert rest[-1]["speed"].endswith("B/s")


async def publish(bus: Bus, **fields: Any) -> None:
    await bus.publish(SUBJECT, json.dumps({"model_id": MODEL, **fields}).encode())


async def test_what_another_frontend_stages_is_shown_until_it_is_done(cluster: Cluster, connect: Connect) -> None:
    bus, admin = await connect("other"), cluster.admin()

    def status() -> Any:
        answer = admin.call("GET", "/api/models/big%20horse.1/load-status")
        return answer.json() if answer.status == 200 else answer.status

    assert await asyncio.to_thread(status) == 404
    await publish(bus, status=STATUS, done=False)
    told = {
        "model": MODEL, "state": "staging", "node": "far", "progress": 43.0, "bytes_sent": 43, "total_bytes": 100,
        "file_index": 1, "total_files": 2,
    }  # fmt: skip
    await asyncio.to_thread(wait_until, lambda: status() == told, what="it is shown")
    await publish(bus, done=True)
    await asyncio.to_thread(wait_until, lambda: status() == 404, what="it is over")


async def test_a_mirror_ends_automatically_and_what_is_ours_has_none() -> None:
    clock, ours = HeldClock(), set[str]()
    mirrors = RemoteStaging(clock, is_ours=ours.__contains__)
    message = BusMessage(SUBJECT, json.dumps({"model_id": MODEL, "done": False, "status": STATUS}).encode())
    await mirrors.on_staging(message)
    clock.now_s += EXPIRES_S
    assert mirrors.find(MODEL) is not None
    clock.now_s += 1
    assert mirrors.find(MODEL) is None
    ours.add(MODEL)
    await mirrors.on_staging(message)
    assert mirrors.find(MODEL) is None
