"""The smoke test of a new version on a real worker: what counts against the version, and what does not."""

import asyncio
from pathlib import Path

import pytest

from corral.controller.replicas.smoke_test import SmokeTest, VersionFailed
from corral.core.backends.rollout import ReplicaChange
from corral.core.errors import Unavailable
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedProcess, ProcessStatus
from harness.localai_backend import write_localai_backend
from harness.registrar import NODE
from harness.single_worker import Commander, SingleWorker
from harness.waiting import wait_until_async


async def install(frontend: Commander, source: Path) -> list[ReplicaChange]:
    """Of what a process of another version would be changed to."""
    installed = await frontend.ask("backend.install", backend="demo", uri=f"file://{source}")
    assert installed["success"], installed
    [backend] = (await frontend.ask("corral.report.now"))["backends"]
    old = ObservedProcess(
        process_key="m#0", model="m", replica=0, backend="demo", digest="sha256:old", state=ProcessStatus.READY,
        protocol="localai-grpc",
    )  # fmt: skip
    return [ReplicaChange(process=old, digest=backend["digest"])]


async def try_start(frontend: Commander, changes: list[ReplicaChange]) -> None:
    digest = changes[0].digest
    await SmokeTest(frontend.bus).roll_out(NodeId(NODE), changes, backend="demo", digest=digest, operation_id="o")


async def test_a_smoke_test_that_another_frontend_stops_proves_nothing_against_the_version(
    worker: SingleWorker, tmp_path: Path
) -> None:
    """Two frontends try one version for one order where the first lost its claim and has not heard of that."""
    source = write_localai_backend(tmp_path / "source")
    (source / "run.sh").write_text("#!/bin/sh\nsleep 600\n")
    async with worker.frontend() as frontend:
        running = asyncio.ensure_future(try_start(frontend, await install(frontend, source)))

        async def is_starting() -> bool:
            return bool((await frontend.ask("corral.report.now"))["processes"])

        await wait_until_async(is_starting, what="the new version is being started")
        stopped = await frontend.ask("model.stop", process_key="smoke-test-o#0", model_name="smoke-test-o")
        assert stopped["terminated"], stopped
        with pytest.raises(Unavailable, match="stopped while starting"):
            await asyncio.wait_for(running, 30)


async def test_a_version_that_does_not_start_fails_its_smoke_test(worker: SingleWorker, tmp_path: Path) -> None:
    source = write_localai_backend(tmp_path / "source")
    (source / "run.sh").write_text("#!/bin/sh\necho the engine is on fire >&2\nexit 3\n")
    async with worker.frontend() as frontend:
        with pytest.raises(VersionFailed, match="the engine is on fire"):
            await try_start(frontend, await install(frontend, source))
