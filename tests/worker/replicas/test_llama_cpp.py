"""llama.cpp from PyPI with real weights, under the worker: it serves, and goes on serving when the worker is killed."""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.artifacts import Artifacts
from corral.artifacts.host_settings import settings_from_environment
from corral.system import SystemClock, SystemIds
from harness.nats import Nats
from harness.single_worker import SingleWorker
from harness.waiting import wait_until_async


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model of Corral's own gallery."""

    async def fetch() -> Path:
        settings = settings_from_environment(tmp_path_factory.mktemp("weights"), os.environ)
        async with Artifacts(settings, clock=SystemClock(), ids=SystemIds()) as artifacts:
            entry = next(entry for entry in await artifacts.read_models() if entry.name == "smollm2")
            [placed] = await artifacts.install_files((await artifacts.read_model(entry)).files)
            return placed.path

    return asyncio.run(fetch())


@pytest.fixture
def worker(tmp_path: Path, nats: Nats) -> Iterator[SingleWorker]:
    worker = SingleWorker(tmp_path, nats)
    yield worker
    worker.close()


def open_chat(address: str, token: str, *, tokens: int) -> Any:
    body = {
        "model": "smollm2",
        "stream": True,
        "max_tokens": tokens,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Tell a long story about a cluster of horses."}],
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    return urllib.request.urlopen(request, timeout=60)


def read_event(stream: Any) -> str:
    """One server-sent event's data; empty at the end of the stream."""
    for line in stream:
        if line.startswith(b"data: "):
            return str(line[6:].decode().strip())
    return ""


async def test_killing_the_worker_in_mid_stream_breaks_nothing_and_the_next_worker_owns_the_process(
    worker: SingleWorker, weights: Path
) -> None:
    start = {"model": str(weights), "model_name": "smollm2", "context": 2048, "options": {"threads": "1"}}
    wanted: dict[str, Any] = {"backend": "llama-cpp", "model_id": "smollm2", "corral": {"start": start}}
    async with worker.frontend() as frontend:
        started = await frontend.ask("backend.install", within_s=300, **wanted)
        assert started["success"], started
    stream = await asyncio.to_thread(open_chat, started["address"], started["corral"]["token"], tokens=300)
    with stream:
        events = [await asyncio.to_thread(read_event, stream) for _ in range(10)]
        worker.program.send(signal.SIGKILL)
        assert worker.program.wait(60) == -signal.SIGKILL
        worker.restart()
        async with worker.frontend() as frontend:
            process = (await frontend.processes())["smollm2#0"]
            while events[-1] not in ("", "[DONE]"):
                events.append(await asyncio.to_thread(read_event, stream))
            assert events[-1] == "[DONE]", "the stream ended as if nothing had happened"
            said = "".join(
                json.loads(event)["choices"][0]["delta"].get("content") or ""
                for event in events[:-1]
                if json.loads(event).get("choices")
            )
            print(f"{len(events)} events, {len(said)} characters: {said[:120]!r}")
            assert len(said) > 500
            assert process["pid"] == started["corral"]["pid"]

            async def ready() -> dict[str, Any] | None:
                now = (await frontend.processes())["smollm2#0"]
                return now if now["state"] == "ready" else None

            adopted = await wait_until_async(ready, what="the process is taken over")
            assert (adopted["token"], adopted["address"]) == (started["corral"]["token"], started["address"])
            again = await frontend.ask("backend.install", **wanted)
            assert again["corral"]["pid"] == started["corral"]["pid"]
            # It is the new worker's own: it can stop it, tree and all.
            stopped = await frontend.ask(
                "model.stop", model_name="smollm2", process_key="smollm2#0", expected_address=started["address"]
            )
            assert stopped["terminated"], stopped
            with pytest.raises(ProcessLookupError):
                os.kill(started["corral"]["pid"], 0)
