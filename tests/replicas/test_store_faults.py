"""The store restarts, or the frontend that runs a load stands still: no load begins again, and nobody who waits for one
is turned away."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.echo_cluster import CONFIG, start_echo_worker
from harness.gated_files import GatedFiles
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Admin
from harness.traffic import post_chat
from harness.waiting import wait_until

pytestmark = pytest.mark.postgres
WEIGHTS = b"the weights" * 1000
PAUSE_S = 20.0


@pytest.fixture
def cluster(postgres_url: str, tmp_path: Path, nats: Nats) -> Iterator[Cluster]:
    running = Cluster(tmp_path, nats, postgres_url)
    yield running
    running.stop()


@pytest.fixture
def web() -> Iterator[GatedFiles]:
    server = GatedFiles({"weights": WEIGHTS})
    yield server
    server.stop()


class Waiting:
    """Requests for a cold model that are open at the same time."""

    def __init__(self, urls: list[str], count: int) -> None:
        self._urls, self._count = urls, count
        self.fates: Counter[str] = Counter()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        await asyncio.gather(*(self._ask(self._urls[number % len(self._urls)]) for number in range(self._count)))

    async def _ask(self, url: str) -> None:
        try:
            posted = await post_chat(url, ADMIN_KEY, "horse", within_s=180)
            self.fates["200" if posted.status == 200 else f"{posted.status} {posted.body[-300:]}"] += 1
        except (OSError, EOFError) as error:
            self.fates[repr(error)] += 1

    def all_answered(self) -> bool:
        return self.fates == {"200": self._count}

    def join(self) -> None:
        self._thread.join(180)


def log_of(cluster: Cluster, *names: str) -> str:
    return "".join((cluster.directory / f"{name}.log").read_text(errors="replace") for name in names)


def state_of(admin: Admin) -> str:
    answer = admin.call("GET", "/api/models/horse/load-status")
    return str(answer.json()["state"]) if answer.status == 200 else ""


def add_horse(admins: list[Admin], more: str) -> None:
    added = admins[0].call("POST", "/api/models", body={"config": CONFIG.format(name="horse") + more})
    assert added.status == 201, added.body
    for admin in admins:
        wait_until(lambda: admin.call("GET", "/v1/models").json()["data"], what="every frontend knows it")  # noqa: B023


def test_a_restart_of_postgresql_ends_neither_a_load_nor_the_fifty_who_wait_for_it(
    cluster: Cluster, postgres: Postgres
) -> None:
    admins = [cluster.start_frontend(name) for name in ("a", "b")]
    start_echo_worker(cluster, "w1")
    go_on, calls = cluster.gates / "go-on", cluster.gates / "calls"
    add_horse(admins, f"options: ['until:{go_on}', 'counted:{calls}']\n")
    waiting = Waiting([admin.url for admin in admins], 50)
    wait_until(lambda: calls.exists() and state_of(admins[0]) == "loading", what="it is being loaded", within_s=60)
    for how in (signal.SIGINT, signal.SIGQUIT):
        postgres.stop(how)
        away_s = time.monotonic()
        # Longer than a claim and a look need, so that each loop has met the fault.
        wait_until(lambda: time.monotonic() - away_s > 3, what="the outage itself")  # noqa: B023
        postgres.start()
    assert not waiting.fates, "all of them wait on"
    go_on.touch()
    waiting.join()
    assert waiting.all_answered(), waiting.fates
    assert calls.read_text() == "called\n", "the model was loaded once"
    assert log_of(cluster, "w1").count("process.launched") == 1
    logs = log_of(cluster, "a", "b")
    for sign in ("never retrieved", "loop.crashed", "load.crashed", "load.failed", "Traceback"):
        assert sign not in logs
    assert len(cluster.ready("horse")) == 1


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def owner_of(cluster: Cluster) -> str:
    """The frontend that carries the load out."""
    port_of = {name: admin.url.rpartition(":")[2] for name in ("a", "b") for admin in [cluster.admin(name)]}
    found = cluster.read_sql("SELECT f.url FROM load_jobs j JOIN frontends f ON f.id = j.owner")
    return next((name for name, port in port_of.items() if found and found[0][0].endswith(f":{port}")), "")


def test_a_frontend_that_stood_still_in_the_middle_of_a_load_cancels_nothing_when_it_goes_on(
    cluster: Cluster, web: GatedFiles
) -> None:
    admins = {name: cluster.start_frontend(name) for name in ("a", "b")}
    start_echo_worker(cluster, "w1")
    add_horse([*admins.values()], f"download_files: [{web.download('horse/model.gguf', 'weights')}]\n")
    assert admins["a"].call("POST", "/api/models/horse/load").status == 202
    wait_until(
        lambda: web.under_way == ["weights"] and owner_of(cluster), what="its weights are on their way", within_s=60
    )
    frozen = owner_of(cluster)
    other = "b" if frozen == "a" else "a"
    waiting = Waiting([admins[other].url], 20)
    with paused(cluster.frontends[frozen].pid):
        began_s = time.monotonic()
        wait_until(lambda: owner_of(cluster) == other, what="the other has taken it over", within_s=60)
        wait_until(lambda: time.monotonic() - began_s > PAUSE_S, what="the pause itself")
    cluster.frontends[frozen].wait_for_output("load.taken_over")
    assert web.under_way == ["weights"], "the download goes on"
    assert owner_of(cluster) == other
    web.let_go("weights")
    waiting.join()
    assert waiting.all_answered(), waiting.fates
    assert len(cluster.ready("horse", other)) == 1
    assert log_of(cluster, "w1").count("process.launched") == 1
    assert "cancel" not in log_of(cluster, "w1")


def test_a_restart_of_the_bus_ends_neither_a_load_nor_those_who_wait_for_it(
    cluster: Cluster, web: GatedFiles, nats: Nats
) -> None:
    admins = [cluster.start_frontend(name) for name in ("a", "b")]
    start_echo_worker(cluster, "w1")
    add_horse(admins, f"download_files: [{web.download('horse/model.gguf', 'weights')}]\n")
    waiting = Waiting([admin.url for admin in admins], 20)
    wait_until(lambda: web.under_way == ["weights"], what="its weights are on their way", within_s=60)
    nats.stop()
    away_s = time.monotonic()
    wait_until(lambda: time.monotonic() - away_s > 3, what="the outage itself")
    nats.start()
    assert web.under_way == ["weights"], "the download goes on"
    web.let_go("weights")
    waiting.join()
    assert waiting.all_answered(), waiting.fates
    logs = log_of(cluster, "a", "b")
    for sign in ("never retrieved", "loop.crashed", "load.crashed", "load.failed"):
        assert sign not in logs
    assert log_of(cluster, "w1").count("process.launched") == 1
