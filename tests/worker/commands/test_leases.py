"""INV-19: a machine that lost contact ends, by its own clock, what has been given to others. And nothing else."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.localai_backend import write_http_backend
from harness.nats import Nats
from harness.single_worker import Commander, SingleWorker
from harness.waiting import wait_until, wait_until_async

LEASE_S = 3.0


@pytest.fixture
def worker(tmp_path: Path, nats: Nats) -> Iterator[SingleWorker]:
    worker = SingleWorker(tmp_path, nats)
    yield worker
    worker.close()


async def start_two(worker: SingleWorker, frontend: Commander, source: Path) -> tuple[int, int]:
    write_http_backend(source)
    pids = []
    for replica in (0, 1):
        reply = await frontend.ask(
            "backend.install", backend="web", uri=f"file://{source}", model_id="m", replica_index=replica,
            corral={"generation": 3, "start": {"model": "/weights"}},
        )  # fmt: skip
        assert reply["success"], reply
        pids.append(reply["corral"]["pid"])
    return pids[0], pids[1]


def grant(worker: SingleWorker, **grant: object) -> None:
    """Returns when a heartbeat has been told, and the next one has shown that the worker took it in."""
    worker.registrar.grant = grant
    told = len(worker.registrar.beats)
    wait_until(lambda: len(worker.registrar.beats) > told + 1 or None, what="two heartbeats arrived")


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid)


async def test_a_cut_off_worker_ends_what_it_holds_on_lease_and_keeps_the_rest(
    worker: SingleWorker, tmp_path: Path
) -> None:
    async with worker.frontend() as frontend:
        leased, kept = await start_two(worker, frontend, tmp_path / "source")
        grant(worker, leases_s={"m#0": LEASE_S})
        worker.registrar.silent = True
        began_s = time.monotonic()
        wait_until(lambda: is_gone(leased) or None, what="the leased process is gone")
        # The last answer came one heartbeat before the silence, or a little more where the machine is busy.
        assert time.monotonic() - began_s > LEASE_S / 2

        async def only_the_other() -> bool:
            return set(await frontend.processes()) == {"m#1"}

        await wait_until_async(only_the_other, what="only the other is listed")
        assert (await frontend.processes())["m#1"]["pid"] == kept


async def test_heartbeats_renew_leases(worker: SingleWorker, tmp_path: Path) -> None:
    async with worker.frontend() as frontend:
        leased, _ = await start_two(worker, frontend, tmp_path / "source")
        grant(worker, leases_s={"m#0": LEASE_S})
        beats, began_s = len(worker.registrar.beats), time.monotonic()
        wait_until(lambda: time.monotonic() - began_s > 2.5 * LEASE_S or None, what="several leases' time has passed")
        assert len(worker.registrar.beats) > beats + 3
        assert (await frontend.processes())["m#0"]["pid"] == leased


async def test_nothing_ends_while_a_frontend_reports_that_its_store_is_unavailable(
    worker: SingleWorker, tmp_path: Path
) -> None:
    """F-14: loaded models serve on."""
    async with worker.frontend() as frontend:
        leased, _ = await start_two(worker, frontend, tmp_path / "source")
        grant(worker, leases_s={"m#0": LEASE_S})
        worker.registrar.store_away = True
        began_s = time.monotonic()
        wait_until(lambda: time.monotonic() - began_s > 2.5 * LEASE_S or None, what="several leases' time has passed")
        assert (await frontend.processes())["m#0"]["pid"] == leased
        worker.registrar.silent = True
        wait_until(lambda: is_gone(leased) or None, what="the leased process is gone")


async def test_a_worker_that_was_paused_ends_only_what_was_revoked_meanwhile(
    worker: SingleWorker, tmp_path: Path
) -> None:
    """F-08. Its leases are over, but the fleet tells what it has really lost."""
    async with worker.frontend() as frontend:
        first, second = await start_two(worker, frontend, tmp_path / "source")
        grant(worker, leases_s={"m#0": LEASE_S, "m#1": LEASE_S})
        pid = worker.program.process.pid
        os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        wait_until(lambda: time.monotonic() - began_s > 2 * LEASE_S or None, what="its leases are over")
        worker.registrar.grant = {"leases_s": {"m#1": 60.0}, "revoked": {"m#0": 3}}
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: is_gone(first) or None, what="the revoked process has ended")
        assert (await frontend.processes())["m#1"]["pid"] == second


async def test_word_of_an_older_process_does_not_end_its_successor(worker: SingleWorker, tmp_path: Path) -> None:
    async with worker.frontend() as frontend:
        first, second = await start_two(worker, frontend, tmp_path / "source")
        grant(worker, revoked={"m#0": 2, "m#1": 3})
        wait_until(lambda: is_gone(second) or None, what="the revoked process has ended")
        assert (await frontend.processes())["m#0"]["pid"] == first


async def test_a_worker_killed_while_cut_off_does_not_count_from_zero(worker: SingleWorker, tmp_path: Path) -> None:
    async with worker.frontend() as frontend:
        leased, kept = await start_two(worker, frontend, tmp_path / "source")
        grant(worker, leases_s={"m#0": LEASE_S})
    worker.registrar.silent = True
    worker.program.kill()
    worker.restart()
    wait_until(lambda: is_gone(leased) or None, what="the leased process is gone")
    assert psutil.pid_exists(kept)
