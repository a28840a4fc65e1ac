"""A LocalAI frontend and a LocalAI gRPC backend: the old way, with none of Corral's fields."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from corral.bus.client import BusMessage
from harness.localai_backend import write_localai_backend
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.registrar import NODE, TOKEN
from harness.single_worker import SingleWorker
from harness.waiting import is_listening


def text(number: int, value: str) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value.encode()


async def call_backend(address: str, method: str, message: bytes, token: str) -> bytes:
    async with grpc.aio.insecure_channel(address) as channel:
        metadata = (("authorization", f"Bearer {token}"),)
        reply: bytes = await channel.unary_unary(f"/backend.Backend/{method}")(message, metadata=metadata, timeout=30)
        return reply


@pytest.fixture
def localai_worker(tmp_path: Path, nats: Nats) -> Iterator[SingleWorker]:
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", corral=False)
    yield worker
    left = worker.close()
    assert not left, worker.program.output()[-4000:]


async def test_a_grpc_backend_runs_through_run_sh_is_checked_with_the_token_and_loaded(
    worker: SingleWorker, tmp_path: Path
) -> None:
    source = write_localai_backend(tmp_path / "source", "7")
    async with worker.frontend() as frontend:
        request: dict[str, Any] = {"backend": "demo", "uri": f"file://{source}", "model_id": "qwen", "replica_index": 1}
        started = await frontend.ask("backend.install", **request)
        assert started["success"], started
        assert started["corral"]["protocol"] == "localai-grpc"
        token = started["corral"]["token"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call_backend(started["address"], "Health", b"", "wrong")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await call_backend(started["address"], "LoadModel", text(1, "qwen.gguf"), token)
        answer = await call_backend(started["address"], "Predict", text(1, "hello"), token)
        assert b"qwen.gguf 7 says hello" in answer
        # Freed, it forgets the model and goes on running.
        assert await frontend.ask("model.unload", model_name="qwen") == {"success": True}
        with pytest.raises(grpc.aio.AioRpcError, match="model not loaded"):
            await call_backend(started["address"], "Predict", text(1, "hello"), token)


async def test_an_exact_stop_compares_the_port_frees_and_ends_the_process(worker: SingleWorker, tmp_path: Path) -> None:
    source = write_localai_backend(tmp_path / "source")
    async with worker.frontend() as frontend:
        started = await frontend.ask("backend.install", backend="demo", uri=f"file://{source}", model_id="m")
        port = started["address"].rpartition(":")[2]
        other = await frontend.ask("model.stop", model_name="m", process_key="m#0", expected_address="worker-1:1")
        assert (other["matched"], other["terminated"]) == (True, False)
        assert "address mismatch" in other["error"]
        stopped = await frontend.ask(
            "model.stop", model_name="m", process_key="m#0", expected_address=f"worker-1:{port}"
        )
        address = f"127.0.0.1:{port}"
        expected = {"matched": True, "freed": True, "terminated": True, "process_key": "m#0", "address": address}
        assert stopped == expected
        assert not is_listening(int(port))
        unknown = await frontend.ask("model.stop", model_name="m", process_key="m#0", expected_address=address)
        assert unknown == {"matched": False, "freed": False, "terminated": True, "process_key": "m#0"}


async def test_a_backend_that_listens_on_one_address_only_is_freed_there(tmp_path: Path, nats: Nats) -> None:
    source = write_localai_backend(tmp_path / "source")
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--host", "127.0.0.2", "--advertise", "127.0.0.2")
    try:
        async with worker.frontend() as frontend:
            started = await frontend.ask("backend.install", backend="demo", uri=f"file://{source}", model_id="m")
            assert started["address"].startswith("127.0.0.2:"), started
            stopped = await frontend.ask("model.stop", process_key="m#0")
            assert (stopped["freed"], stopped["terminated"]) == (True, True), stopped
    finally:
        assert worker.close() == []


async def test_a_localai_frontend_installs_starts_upgrades_and_deletes_as_before(
    localai_worker: SingleWorker, registry: OciRegistry, tmp_path: Path
) -> None:
    from harness.localai_backend import localai_files

    registry.push("backends/demo", localai_files("1"), tag="latest-cpu-demo")
    index = tmp_path / "index.yaml"
    index.write_text(
        "- name: demo\n  capabilities: {default: cpu-demo}\n"
        f"- name: cpu-demo\n  alias: demo\n  uri: {registry.host}/backends/demo:latest-cpu-demo\n"
        "- name: llama-cpp\n  alias: llama-cpp\n  uri: 127.0.0.1:1/none:latest\n"
    )
    galleries = json.dumps([{"url": f"file://{index}", "name": "localai"}])
    async with localai_worker.frontend() as frontend:
        wanted: dict[str, Any] = {"backend": "demo", "backend_galleries": galleries}
        async with frontend.listening("backend.install.op-1.progress") as progress:
            started = await frontend.ask("backend.install", model_id="qwen", replica_index=0, op_id="op-1", **wanted)
        assert started["success"], started
        assert progress[-1]["corral"]["last"]
        assert progress[-1]["percentage"] == 100.0
        # LocalAI's token for all: the registration token.
        assert b"OK" in await call_backend(started["address"], "Health", b"", TOKEN)
        rows = {row["name"]: row for row in (await frontend.ask("backend.list"))["backends"]}
        assert rows["cpu-demo"]["alias"] == "demo"
        assert (rows["demo"]["is_meta"], rows["demo"]["concrete"]) == (True, "cpu-demo")
        digest = registry.push("backends/demo", localai_files("2"), tag="latest-cpu-demo")
        # An upgrade through the fallback of an older frontend: force stops all, reinstalls and starts.
        forced = await frontend.ask("backend.install", model_id="qwen", force=True, **wanted)
        assert forced["success"], forced
        assert forced["corral"]["digest"] == digest
        assert forced["corral"]["pid"] != started["corral"]["pid"]
        # Also when it is the very version that is here: what somebody has spoilt in it is mended.
        spoilt = localai_worker.data_dir / "backends" / "cpu-demo" / "current" / "backend.py"
        spoilt.unlink()
        spoilt.write_text("import sys; sys.exit('spoilt')")
        mended = await frontend.ask("backend.install", model_id="qwen", force=True, **wanted)
        assert mended["success"], mended
        assert (mended["corral"]["digest"], mended["corral"]["pid"] != forced["corral"]["pid"]) == (digest, True)
        # Its own list replaces ours: Corral's llama-cpp, which it could not drive, is not taken.
        own = await frontend.ask("backend.install", backend="llama-cpp", backend_galleries=galleries)
        assert not own["success"]
        assert "127.0.0.1:1" in own["error"]
        upgraded = await frontend.ask("backend.upgrade", **wanted)
        assert upgraded["stopped_process_keys"] == ["qwen#0"]
        assert (await frontend.ask("models.running"))["models"] == []
        assert (await frontend.ask("backend.delete", backend="demo"))["success"]
        assert (await frontend.ask("backend.list"))["backends"] is None


async def test_replies_go_only_to_this_nodes_own_space(worker: SingleWorker) -> None:
    """S-36."""
    async with worker.frontend() as frontend:
        heard: list[bytes] = []

        async def hear(message: BusMessage) -> None:
            heard.append(message.data)

        await frontend.bus.serve("_INBOX.fe.another-node.>", hear, concurrency=1)
        client = frontend.bus._client
        assert client is not None
        await client.publish(f"nodes.{NODE}.backend.list", b"{}", reply="_INBOX.fe.another-node.x.1")
        assert (await frontend.ask("backend.list"))["backends"] is None
        await asyncio.to_thread(worker.program.wait_for_output, "bus.reply_rejected")
        assert heard == []


async def test_stop_takes_a_backend_a_model_a_key_or_everything(worker: SingleWorker, tmp_path: Path) -> None:
    from harness.waiting import wait_until_async

    source = write_localai_backend(tmp_path / "source")

    async def running() -> list[str]:
        return sorted(await frontend.processes())

    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="demo", uri=f"file://{source}"))["success"]
        for model, replica in (("a", 0), ("a", 1), ("b", 0)):
            await frontend.ask("backend.install", backend="demo", model_id=model, replica_index=replica)
        assert await running() == ["a#0", "a#1", "b#0"]
        for told, left in (("a#1", ["a#0", "b#0"]), ("a", ["b#0"]), ("nobody", ["b#0"]), ("demo", [])):
            await frontend.tell("backend.stop", backend=told)

            async def settled(left: list[str] = left) -> bool:
                return await running() == left

            await wait_until_async(settled, what=f"{left} are left after {told}")
        await frontend.ask("backend.install", backend="demo", model_id="a")
        await frontend.bus.publish(f"nodes.{NODE}.backend.stop", b"null")

        async def none_left() -> bool:
            return await running() == []

        await wait_until_async(none_left, what="everything has stopped")
