"""Install, upgrade, roll back, delete and start: a real worker, a real bus, a real registry, real processes."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from corral.worker.commands import COMMANDS
from corral.worker.processes.records import read_start_ticks
from harness.held_server import HeldServer
from harness.localai_backend import http_files, localai_files, write_http_backend, write_localai_backend
from harness.machine_speed import Yardstick
from harness.nats import Nats
from harness.oci_registry import OciRegistry, Trickle
from harness.programs import call
from harness.registrar import NODE
from harness.single_worker import SingleWorker
from harness.unreadable_requests import UNREADABLE
from harness.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.registry


async def test_an_upgrade_replaces_the_bytes_and_reports_the_new_digest(
    worker: SingleWorker, registry: OciRegistry
) -> None:
    uri = f"{registry.host}/demo:latest"
    first = registry.push("demo", localai_files("1"))
    async with worker.frontend() as frontend:
        installed = await frontend.ask("backend.install", backend="demo", uri=uri)
        assert installed["success"], installed
        started = await frontend.ask("backend.install", backend="demo", model_id="m")
        assert started["success"], started
        second = registry.push("demo", localai_files("2"))
        upgraded = await frontend.ask("backend.upgrade", backend="demo")
        assert upgraded["success"], upgraded
        assert (upgraded["stopped_process_keys"], upgraded["reports_stopped_processes"]) == (["m#0"], True)
        assert (installed["corral"]["digest"], upgraded["corral"]["digest"]) == (first, second)
        listed = (await frontend.ask("backend.list"))["backends"]
        assert [(row["name"], row["digest"]) for row in listed] == [("demo", second)]
        assert (worker.data_dir / "backends" / "demo" / "current" / "VERSION").read_text() == "2"
        assert (await frontend.ask("models.running"))["models"] == []


async def test_six_identical_installs_at_once_do_one_download(worker: SingleWorker, registry: OciRegistry) -> None:
    uri = f"{registry.host}/demo:latest"
    registry.push("demo", {**localai_files(), "weights": os.urandom(3 << 20)})
    async with worker.frontend() as frontend:
        replies = await asyncio.gather(*(frontend.ask("backend.install", backend="demo", uri=uri) for _ in range(6)))
        assert [reply["success"] for reply in replies] == [True] * 6
        # One layer and one configuration.
        assert registry.blob_downloads() <= 2


async def test_old_versions_go_unless_a_process_runs_from_them_and_a_delete_frees_the_disk(
    tmp_path: Path, nats: Nats, registry: OciRegistry
) -> None:
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", "--keep-versions", "1")
    uri = f"{registry.host}/demo:latest"
    home = worker.data_dir / "backends" / "demo"

    def versions() -> set[str]:
        return {path.name for path in home.iterdir() if path.name != "current"}

    try:
        digests = [registry.push("demo", localai_files("1")).removeprefix("sha256:")]
        async with worker.frontend() as frontend:
            assert (await frontend.ask("backend.install", backend="demo", uri=uri))["success"]
            assert (await frontend.ask("backend.install", backend="demo", model_id="m"))["success"]
            for version in ("2", "3"):
                digests.append(registry.push("demo", localai_files(version)).removeprefix("sha256:"))
                reply = await frontend.ask("backend.upgrade", backend="demo", corral={"strategy": "rolling"})
                assert reply["success"], reply
            wait_until(lambda: versions() == {digests[0], digests[2]} or None, what="the one in between is gone")
            assert list(await frontend.processes()) == ["m#0"]
            (listed,) = (await frontend.ask("backend.list"))["backends"]
            assert {digest.removeprefix("sha256:") for digest in listed["versions"]} == {digests[0], digests[2]}
            deleted = await frontend.ask("backend.delete", backend="demo")
            assert deleted["stopped_process_keys"] == ["m#0"]
            parts = [worker.data_dir / "blobs" / "sha256", worker.data_dir / "layers"]
            wait_until(
                lambda: not [path for part in parts for path in part.iterdir() if path.name != ".locks"] or None,
                what="layers and blobs are gone",
            )
    finally:
        worker.close()


async def test_a_backend_killed_behind_the_workers_back_is_replaced_at_the_next_load(
    worker: SingleWorker, tmp_path: Path
) -> None:
    source = write_http_backend(tmp_path / "source")
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="web", uri=f"file://{source}"))["success"]
        wanted: dict[str, Any] = {"backend": "web", "model_id": "m", "corral": {"start": {"model": "/weights"}}}
        first = await frontend.ask("backend.install", **wanted)
        assert first["success"], first
        again = await frontend.ask("backend.install", **wanted)
        assert again["corral"]["pid"] == first["corral"]["pid"]
        os.kill(first["corral"]["pid"], signal.SIGKILL)
        wait_until(
            lambda: read_start_ticks(first["corral"]["pid"]) is None, what="the kernel has ended it", every_s=0.001
        )
        fresh = await frontend.ask("backend.install", **wanted)
        assert fresh["success"], fresh
        assert fresh["corral"]["pid"] != first["corral"]["pid"]
        health = call("GET", f"http://{fresh['address']}/x", key=fresh["corral"]["token"])
        assert health.json()["pid"] == fresh["corral"]["pid"]


async def test_a_slow_upgrade_delays_no_install_or_list_of_other_backends(worker: SingleWorker, tmp_path: Path) -> None:
    async with worker.frontend() as frontend:
        for name in ("a", "b"):
            source = write_localai_backend(tmp_path / name)
            assert (await frontend.ask("backend.install", backend=name, uri=f"file://{source}"))["success"]
        held = HeldServer()
        try:
            upgrade = asyncio.create_task(
                frontend.ask("backend.upgrade", backend="a", uri=f"http://{held.address}/a.tar.gz", within_s=300)
            )
            assert await asyncio.to_thread(held.asked.wait, 60)
            took_s = []
            with Yardstick(worker.directory) as yardstick:
                for number in range(50):
                    began_s = time.monotonic()
                    is_install = number % 2
                    asked = frontend.ask("backend.install", backend="b") if is_install else frontend.ask("backend.list")
                    reply = await asked
                    assert not reply.get("error"), reply
                    took_s.append(time.monotonic() - began_s)
            assert not upgrade.done()
            p99_s = max(took_s)
            print(f"p99 of 50 requests beside a running upgrade: {p99_s * 1000:.1f} ms")
            assert p99_s < yardstick.allows_s(0.5)
            cancelled = await frontend.ask("corral.cancel", backend="a")
            assert cancelled["cancelled"] == 1
            outcome = await upgrade
            assert not outcome["success"]
            assert outcome["code"] == "cancelled"
        finally:
            held.close()


LINE_BYTES_PER_S = 200 << 10
UPGRADE_S = float(os.environ.get("CORRAL_TEST_UPGRADE_S", "6"))


async def test_installs_and_lists_answer_in_milliseconds_for_as_long_as_an_upgrade_takes(
    worker: SingleWorker, registry: OciRegistry, tmp_path: Path
) -> None:
    """Over a slow line; minutes with `CORRAL_TEST_UPGRADE_S`. Another one is installed and stopped meanwhile."""
    line = Trickle(registry.port, bytes_per_s=LINE_BYTES_PER_S)
    registry.push("slow", localai_files("1"))
    uri = f"127.0.0.1:{line.port}/slow:latest"
    took_s: dict[str, list[float]] = {"backend.install": [], "backend.list": []}
    try:
        async with worker.frontend() as frontend:
            assert (await frontend.ask("backend.install", backend="slow", uri=uri))["success"]
            source = write_http_backend(tmp_path / "web")
            wanted: dict[str, Any] = {
                "backend": "web",
                "uri": f"file://{source}",
                "corral": {"start": {"model": "/weights"}},
            }
            assert (await frontend.ask("backend.install", **wanted, model_id="m"))["success"]
            new = registry.push("slow", localai_files("2"), {"weights": os.urandom(int(LINE_BYTES_PER_S * UPGRADE_S))})
            began_s = time.monotonic()
            upgrade = asyncio.create_task(
                frontend.ask("backend.upgrade", backend="slow", uri=uri, within_s=20 * UPGRADE_S + 300)
            )
            with Yardstick(worker.directory) as yardstick:
                for _ in range(50):
                    for verb, fields in (("backend.install", {**wanted, "model_id": "m"}), ("backend.list", {})):
                        asked_s = time.monotonic()
                        reply = await frontend.ask(verb, **fields)
                        took_s[verb].append(time.monotonic() - asked_s)
                        assert not reply.get("error"), reply
                    await asyncio.sleep(0.8 * UPGRADE_S / 50)  # spread over the upgrade
                    # However long the questions take, the upgrade takes longer.
                    line.bytes_per_s = max(line.bytes_per_s * 0.9, 20_000)
            assert not upgrade.done()
            line.bytes_per_s = 100 * LINE_BYTES_PER_S
            stopped = await frontend.ask("model.stop", process_key="m#0", force=True)
            assert stopped["terminated"], stopped
            done = await upgrade
            assert (done["success"], done["corral"]["digest"]) == (True, new)
    finally:
        line.stop()
    for verb, each_s in took_s.items():
        worst_s, median_s = max(each_s), sorted(each_s)[len(each_s) // 2]
        print(f"{verb}: p50 {median_s * 1000:.1f} ms, p99 {worst_s * 1000:.1f} ms")
        assert worst_s < yardstick.allows_s(0.5)
    print(f"beside an upgrade of {time.monotonic() - began_s:.0f} s")


async def test_a_rolling_upgrade_stops_nothing_and_a_rollback_goes_back(
    worker: SingleWorker, registry: OciRegistry
) -> None:
    uri = f"{registry.host}/web:latest"
    first = registry.push("web", http_files("1"))
    start = {"start": {"model": "/weights"}}
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="web", uri=uri))["success"]
        old = await frontend.ask("backend.install", backend="web", model_id="m", corral=start)
        second = registry.push("web", http_files("2"))
        upgraded = await frontend.ask("backend.upgrade", backend="web", corral={"strategy": "rolling"})
        assert upgraded["success"], upgraded
        assert "stopped_process_keys" not in upgraded
        assert call("GET", f"http://{old['address']}/x", key=old["corral"]["token"]).json()["version"] == "1"
        new = await frontend.ask("backend.install", backend="web", model_id="m", replica_index=1, corral=start)
        assert (new["corral"]["digest"], old["corral"]["digest"]) == (second, first)
        # Asked for the version it runs, the old process is found; asked for nothing special, it is replaced.
        pinned = await frontend.ask(
            "backend.install", backend="web", model_id="m", corral={"build": {"digest": first}, **start}
        )
        assert pinned["corral"]["pid"] == old["corral"]["pid"]
        replaced = await frontend.ask("backend.install", backend="web", model_id="m", corral=start)
        assert replaced["corral"]["digest"] == second
        back = await frontend.ask("corral.backend.rollback", backend="web")
        assert (back["success"], back["corral"]["digest"]) == (True, first)
        numbered: dict[str, Any] = {"backend": "web", "corral": {"strategy": "rolling", "generation": 7}}
        assert (await frontend.ask("backend.upgrade", **numbered))["success"]
        assert (await frontend.ask("corral.report.now"))["applied"] == {"web": 7}
        undone = await frontend.ask("corral.backend.rollback", backend="web", to=first, generation=7, undo=True)
        assert (undone["success"], undone["corral"]["digest"]) == (True, first)
        assert "applied" not in await frontend.ask("corral.report.now"), "what was taken back was not carried out"
        assert set(await frontend.processes()) == {"m#0", "m#1"}


@pytest.mark.registry
async def test_an_undone_change_brings_back_the_version_that_was_current_before_it(
    worker: SingleWorker, registry: OciRegistry
) -> None:
    """Not the version that was installed last: that one may have failed, too."""
    uri = f"127.0.0.1:{registry.port}/web:latest"

    def change(generation: int, digest: str = "") -> dict[str, Any]:
        build = {"build": {"digest": digest}} if digest else {}
        return {"backend": "web", "corral": {"strategy": "rolling", "generation": generation, **build}}

    def undo(generation: int) -> dict[str, Any]:
        return {"backend": "web", "generation": generation, "undo": True}

    first = registry.push("web", http_files("1"))
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="web", uri=uri))["success"]
        registry.push("web", http_files("2"))
        assert (await frontend.ask("backend.upgrade", **change(2)))["success"]
        assert (await frontend.ask("corral.backend.rollback", **undo(2)))["corral"]["digest"] == first
        third = registry.push("web", http_files("3"))
        assert (await frontend.ask("backend.upgrade", **change(3)))["corral"]["digest"] == third
    worker.program.kill()
    worker.restart()
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.upgrade", **change(3)))["corral"]["digest"] == third, "it is repeated"
        assert (await frontend.ask("corral.backend.rollback", **undo(3)))["corral"]["digest"] == first
        assert (await frontend.ask("backend.install", **change(4, first)))["corral"]["digest"] == first
        unchanged = await frontend.ask("corral.backend.rollback", **undo(4))
        assert (unchanged["success"], unchanged["corral"]["digest"]) == (True, first), "there is nothing to undo"


async def test_orders_older_than_the_last_are_refused_also_after_a_restart(
    worker: SingleWorker, tmp_path: Path
) -> None:
    """S-40: a replayed command."""
    source = write_localai_backend(tmp_path / "source")
    install: dict[str, Any] = {"backend": "demo", "uri": f"file://{source}"}
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", **install, corral={"generation": 5}))["success"]
        assert (await frontend.ask("backend.delete", backend="demo", corral={"generation": 6}))["success"]
        for _ in range(2):
            replayed = await frontend.ask("backend.install", **install, corral={"generation": 5})
            assert (replayed["success"], replayed["code"]) == (False, "outdated_command")
        # The same order again is done already; one without a generation is LocalAI's and is taken as it comes.
        assert (await frontend.ask("backend.delete", backend="demo", corral={"generation": 6}))["success"]
    worker.program.kill()
    worker.restart()
    async with worker.frontend() as frontend:
        assert not (await frontend.ask("backend.install", **install, corral={"generation": 5}))["success"]
        assert (await frontend.ask("backend.list"))["backends"] is None
        assert (await frontend.ask("backend.install", **install))["success"]


async def test_a_delete_stops_what_uses_the_backend_and_is_done_when_there_is_nothing(
    worker: SingleWorker, tmp_path: Path
) -> None:
    source = write_localai_backend(tmp_path / "source")
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="demo", uri=f"file://{source}", alias="other"))["success"]
        for replica in (0, 1):
            reply = await frontend.ask("backend.install", backend="other", model_id="m", replica_index=replica)
            assert reply["success"], reply
        deleted = await frontend.ask("backend.delete", backend="other")
        assert deleted["success"], deleted
        assert sorted(deleted["stopped_process_keys"]) == ["m#0", "m#1"]
        assert not (worker.data_dir / "backends" / "demo").exists()
        again = await frontend.ask("backend.delete", backend="other")
        assert (again["success"], again["reports_stopped_processes"]) == (True, True)


async def test_a_delete_that_is_carried_out_is_reported_to_whoever_cancels_it(
    worker: SingleWorker, tmp_path: Path
) -> None:
    """Its process hangs, and has to be killed first: until then the delete is under way."""
    source = write_localai_backend(tmp_path / "source")
    async with worker.frontend() as frontend:
        assert (await frontend.ask("backend.install", backend="demo", uri=f"file://{source}"))["success"]
        assert (await frontend.ask("backend.install", backend="demo", model_id="m"))["success"]
        os.kill((await frontend.processes())["m#0"]["pid"], signal.SIGSTOP)
        deleting = asyncio.create_task(frontend.ask("backend.delete", backend="demo", corral={"op_id": "op-7"}))

        async def is_told() -> bool:
            return bool((await frontend.ask("corral.cancel", op_id="op-7")).get("in_progress") == 1)

        await wait_until_async(is_told, what="the delete is under way")
        assert (await frontend.ask("corral.cancel", op_id="op-8")) == {"cancelled": 0}
        assert (await deleting)["success"]
        assert (await frontend.ask("corral.cancel", op_id="op-7")) == {"cancelled": 0}
        assert not (worker.data_dir / "backends" / "demo").exists()


async def test_directories_made_by_localai_are_listed_and_started(worker: SingleWorker) -> None:
    made = write_localai_backend(worker.data_dir / "backends" / "cpu-piper")
    metadata = {
        "name": "cpu-piper",
        "alias": "piper",
        "gallery_url": "https://example.invalid/backends",
        "installed_at": "2026-08-01T10:11:12Z",
        "uri": "example.invalid/piper:latest",
        "digest": "sha256:" + "4d" * 32,
        "version": "1.2",
    }
    (made / "metadata.json").write_text(json.dumps(metadata))
    async with worker.frontend() as frontend:
        [row] = (await frontend.ask("backend.list"))["backends"]
        assert {key: row[key] for key in metadata} == metadata
        assert (row["is_meta"], row["is_system"]) == (False, False)
        started = await frontend.ask("backend.install", backend="piper", model_id="voice")
        assert started["success"], started
        assert (await frontend.ask("models.running"))["models"] == [
            {"model_id": "voice", "replica_index": 0, "address": started["address"]}
        ]


async def test_a_process_is_not_reused_after_its_directory_was_replaced(worker: SingleWorker) -> None:
    """INV-45, with a directory only LocalAI's tools know."""
    home = worker.data_dir / "backends"
    write_localai_backend(home / "piper", "1")
    async with worker.frontend() as frontend:
        first = await frontend.ask("backend.install", backend="piper", model_id="voice")
        assert first["success"], first
        await frontend.wait_for_log("voice#0", "serving 1")
        (home / "piper").rename(worker.directory / "moved-away")
        write_localai_backend(home / "piper", "2")
        second = await frontend.ask("backend.install", backend="piper", model_id="voice")
        assert second["success"], second
        assert second["corral"]["pid"] != first["corral"]["pid"]
        lines = await frontend.wait_for_log("voice#0", "serving 2")
        assert [line.split()[1] for line in lines if line.startswith("serving")] == ["1", "2"]


async def test_a_stale_order_is_refused_also_when_the_process_runs_already(
    worker: SingleWorker, tmp_path: Path
) -> None:
    source = write_http_backend(tmp_path / "source")
    start = {"model": "/weights"}
    async with worker.frontend() as frontend:
        wanted: dict[str, Any] = {"backend": "web", "uri": f"file://{source}", "model_id": "m"}
        assert (await frontend.ask("backend.install", **wanted, corral={"generation": 7, "start": start}))["success"]
        newer = await frontend.ask("backend.install", **wanted, corral={"generation": 8, "start": start})
        assert (newer["success"], newer["corral"]["generation"]) == (True, 8)
        older = await frontend.ask("backend.install", **wanted, corral={"generation": 7, "start": start})
        assert (older["success"], older["code"]) == (False, "outdated_command")


async def test_a_failing_upgrade_tells_every_caller_what_it_ended(worker: SingleWorker, tmp_path: Path) -> None:
    source = write_localai_backend(tmp_path / "source")
    async with worker.frontend() as frontend:
        for replica in (0, 1):
            started = await frontend.ask(
                "backend.install", backend="demo", uri=f"file://{source}", model_id="m", replica_index=replica
            )
            assert started["success"], started
        upgrade: dict[str, Any] = {"backend": "demo", "uri": f"file://{tmp_path}/not-there"}
        replies = await asyncio.gather(*(frontend.ask("backend.upgrade", **upgrade, op_id=f"o{n}") for n in range(4)))
        for reply in replies:
            assert not reply["success"]
            assert sorted(reply["stopped_process_keys"]) == ["m#0", "m#1"]
            assert reply["reports_stopped_processes"]
        alone = await frontend.ask("backend.upgrade", **upgrade)
        assert "stopped_process_keys" not in alone
        assert (await frontend.ask("models.running"))["models"] == []


async def test_backends_that_came_with_the_system_are_used_and_left_alone(tmp_path: Path, nats: Nats) -> None:
    write_localai_backend(tmp_path / "system" / "piper")
    worker = SingleWorker(tmp_path, nats, "--no-keep-backends", LOCALAI_BACKENDS_SYSTEM_PATH=str(tmp_path / "system"))
    try:
        async with worker.frontend() as frontend:
            assert (await frontend.ask("backend.list"))["backends"] == [
                {"name": "piper", "is_system": True, "is_meta": False}
            ]
            started = await frontend.ask("backend.install", backend="piper", model_id="voice")
            assert started["success"], started
            for verb in ("backend.delete", "backend.upgrade"):
                refused = await frontend.ask(verb, backend="piper")
                assert (refused["success"], refused["code"]) == (False, "system_backend")
                assert "stopped_process_keys" not in refused
            assert (await frontend.processes())["voice#0"]["pid"] == started["corral"]["pid"]
            # One of our own under the same name goes first, and can go again.
            own = write_localai_backend(tmp_path / "own")
            installed = await frontend.ask("backend.install", backend="piper", uri=f"file://{own}", force=True)
            assert installed["success"], installed
            [row] = (await frontend.ask("backend.list"))["backends"]
            assert (row["is_system"], row["uri"]) == (False, f"file://{own}")
            assert (await frontend.ask("backend.delete", backend="piper"))["success"]
            [row] = (await frontend.ask("backend.list"))["backends"]
            assert row["is_system"]
    finally:
        worker.close()


async def test_a_request_nobody_can_read_is_answered(worker: SingleWorker) -> None:
    async with worker.frontend() as frontend:
        for verb in ("backend.install", "backend.upgrade", "backend.delete", "model.stop", "corral.cancel"):
            reply = await frontend.ask(verb, backend=["not", "a", "name"], process_key=7, op_id={})
            assert reply["error"], (verb, reply)
        for command in (command for command in COMMANDS if command.failed is not None):
            for garbage in UNREADABLE:
                data = await frontend.bus.request(f"nodes.{NODE}.{command.subject}", garbage, within_s=60)
                assert isinstance(json.loads(data), dict), (command.subject, garbage)
        bad = await frontend.ask("backend.install", backend="x", backend_galleries="{not json")
        assert "backend_galleries" in bad["error"]
        unknown = await frontend.ask("backend.install", backend="no-such-backend")
        assert "no-such-backend" in unknown["error"]
