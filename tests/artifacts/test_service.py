"""The facade: async, out of the event loop's way, and stopped by cancelling."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from corral.artifacts import Artifacts, ArtifactSettings, BackendRequest, CancelToken
from corral.artifacts.disk.locks import held
from corral.artifacts.errors import Cancelled, NoVariantFits
from corral.artifacts.galleries.catalogue import Catalogue
from corral.artifacts.galleries.entries import parse_backends
from corral.artifacts.requests import ModelFile
from corral.core.backends.build import BuildRef
from corral.core.transfer import TransferProgress
from corral.system import SystemClock, SystemIds
from harness.artifacts import Exchange, FakeRegistry, Image, fast_settings, files_layer, leftovers
from harness.machine_speed import Yardstick, promised
from harness.waiting import wait_until

RUN = b"#!/bin/sh\n"


def open_artifacts(settings: ArtifactSettings) -> Artifacts:
    return Artifacts(settings, clock=SystemClock(), ids=SystemIds())


async def test_the_loop_stays_free_while_an_install_works(registry: FakeRegistry, settings: ArtifactSettings) -> None:
    image = Image([files_layer({"run.sh": RUN}), *(files_layer({f"f{i}": os.urandom(1_500_000)}) for i in range(4))])
    image.platform = ("linux", "arm64" if os.uname().machine == "aarch64" else "amd64")
    uri = registry.push(image)
    seen: list[tuple[TransferProgress, int]] = []
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - before)
            await asyncio.sleep(0.005)

    async with open_artifacts(settings) as artifacts:
        request = BackendRequest(build=BuildRef(name="demo", uris=(uri,)))
        with Yardstick() as yardstick:
            watcher = asyncio.create_task(watch())
            version = await artifacts.install(request, on_progress=lambda p: seen.append((p, threading.get_ident())))
            watcher.cancel()
        assert (await artifacts.current("demo")).path == version.path
        assert [backend.name for backend in await artifacts.list_backends()] == ["demo"]
        assert artifacts.find_blob(image.layer_digests()[0]) is not None
    await asyncio.sleep(0)
    assert {thread for _, thread in seen} == {threading.get_ident()}
    assert longest < yardstick.allows_s(0.5)


@pytest.mark.parametrize("by", ["task", "person", "shutdown"])
async def test_cancelling_stops_the_work_and_keeps_or_discards(
    by: str, registry: FakeRegistry, settings: ArtifactSettings
) -> None:
    image = Image([files_layer({"run.sh": RUN, "noise": os.urandom(900_000)})])
    image.platform = ("linux", "arm64" if os.uname().machine == "aarch64" else "amd64")
    uri = registry.push(image)
    loop, begun, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def stall(exchange: Exchange) -> None:
        digest = image.layer_digests()[0]
        if exchange.path.endswith(digest):
            exchange.send_response(200)
            exchange.send_header("Content-Length", str(len(image.blobs[digest])))
            exchange.end_headers()
            exchange.wfile.write(image.blobs[digest][:200_000])
            loop.call_soon_threadsafe(begun.set)
            released.wait(120)
            raise BrokenPipeError

    registry.hooks.append(stall)
    artifacts = open_artifacts(settings)
    token = CancelToken()
    try:
        await artifacts.__aenter__()
        request = BackendRequest(build=BuildRef(name="demo", uris=(uri,)))
        work = asyncio.create_task(artifacts.install(request, cancel=token))
        await asyncio.wait_for(begun.wait(), 60)
        partials = settings.data_dir / "blobs/partial"
        async with asyncio.timeout(60):
            while not any(path.stat().st_size for path in partials.iterdir()):  # noqa: ASYNC110  a file sets no event
                await asyncio.sleep(0.01)
        with promised("the cancel", within_s=5):
            if by == "task":
                work.cancel()
            elif by == "person":
                token.cancel()
            else:
                await artifacts.__aexit__()
            with pytest.raises((Cancelled, asyncio.CancelledError)):
                await work
        kept = [path for path in partials.iterdir() if path.stat().st_size]
        assert bool(kept) == (by != "person")
    finally:
        released.set()
        if by != "shutdown":
            await artifacts.__aexit__()


async def test_a_node_no_variant_fits_is_told_before_anything_moves(settings: ArtifactSettings) -> None:
    entries = parse_backends(b"- {name: m, capabilities: {nvidia: c}}\n- {name: c, uri: quay.io/x/cuda}\n", gallery="g")
    catalogue = Catalogue(entries=tuple(entries), galleries=())
    async with open_artifacts(settings) as artifacts:
        assert artifacts.request_for(catalogue, "m", "nvidia").build.uris == ("quay.io/x/cuda",)
        with pytest.raises(NoVariantFits, match="no build for amd"):
            artifacts.request_for(catalogue, "m", "amd")


async def test_a_start_sweeps_what_a_killed_process_left(settings: ArtifactSettings, data_dir: Path) -> None:
    corner = data_dir / "staging" / "dead"
    (corner / "half").mkdir(parents=True)
    async with open_artifacts(settings):
        assert not corner.exists()
    assert leftovers(data_dir) == []


@pytest.mark.parametrize(("days", "kept"), [(13, True), (15, False)])
async def test_a_download_that_was_begun_is_kept_for_two_weeks(
    settings: ArtifactSettings, data_dir: Path, days: int, kept: bool
) -> None:
    async with open_artifacts(settings) as artifacts:
        begun = data_dir / "blobs" / "partial" / "sha256-begun"
        begun.write_bytes(b"half")
        then_s = time.time() - days * 24 * 3600
        os.utime(begun, (then_s, then_s))
        assert await artifacts.sweep_partials() == (0 if kept else 4)
        assert begun.exists() is kept


def test_settings_never_show_a_secret() -> None:
    from corral.artifacts.settings import HuggingFaceSettings, Peer, PypiSettings, RegistryLogin
    from corral.system.s3 import S3Settings

    canary = "canary-secret"
    shown = repr(
        [
            RegistryLogin(username="u", password=canary, token=canary),
            S3Settings(secret_key=canary, session_token=canary),
            PypiSettings(password=canary),
            HuggingFaceSettings(token=canary),
            Peer(base_url="http://x", token=canary),
        ]
    )
    assert canary not in shown


def test_the_fast_settings_of_these_tests_differ_only_in_patience(tmp_path: Path) -> None:
    fast, real = fast_settings(tmp_path), ArtifactSettings(data_dir=tmp_path)
    assert (fast.unpack, fast.parallel_layers, fast.keep_blobs) == (real.unpack, real.parallel_layers, real.keep_blobs)


async def test_weights_deleted_while_garbage_is_removed_are_garbage_for_the_next_run(
    settings: ArtifactSettings, tmp_path: Path
) -> None:
    """The run that is under way may have looked at them while they were still needed."""
    source = tmp_path / "weights.gguf"
    source.write_bytes(b"weights")
    files = [ModelFile(name, f"file://{source}", "") for name in ("one.gguf", "two.gguf")]
    locks, whole = settings.data_dir / "locks", settings.data_dir / "blobs" / "sha256"
    async with open_artifacts(settings) as artifacts:
        one, two = await artifacts.install_files(files, target_dir=settings.data_dir / "models")
        seen = whole / ("0" * 64)
        seen.write_bytes(b"a blob that nobody needs")
        os.utime(seen, (0, 0))
        one.path.unlink()
        artifacts.release([one.digest])
        run = asyncio.create_task(artifacts.collect_garbage(spare_s=3600))
        await asyncio.sleep(0)
        # The loop stands still from here on: the run ends, and nobody has been told yet.
        wait_until(lambda: not seen.exists(), what="the run is under way")
        with held(locks, "collect", CancelToken()):
            two.path.unlink()
            artifacts.release([two.digest])
        await run
        assert artifacts.find_blob(two.digest) is not None
        await artifacts.collect_garbage(spare_s=3600)
        assert artifacts.find_blob(two.digest) is None
