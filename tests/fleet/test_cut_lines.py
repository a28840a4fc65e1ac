"""Lines that are cut while a fleet works: a worker's to the bus, a frontend's to the bus, a frontend's to the store."""

from collections.abc import Callable, Iterator

import pytest

from harness.cluster import Cluster
from harness.localai_backend import localai_files
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Admin
from harness.proxy import Proxy, ProxyThread
from harness.waiting import wait_until

pytestmark = pytest.mark.registry


def refuse(proxy: Proxy) -> None:
    proxy.refusing = True


@pytest.fixture
def bus_line(nats: Nats) -> Iterator[ProxyThread]:
    line = ProxyThread(nats.port)
    yield line
    line.stop()


@pytest.fixture
def admin(fleet: Cluster, bus_line: ProxyThread) -> Admin:
    """One worker whose only way to the bus is the line."""
    admin = fleet.start_frontend("a", "--auto-approve", "--backend-install-timeout", "3")
    fleet.start_worker("one", "--bus", f"nats://127.0.0.1:{bus_line.port}")
    admin.wait_for_status("one", "healthy")
    return admin


def attempts(fleet: Cluster) -> list[tuple[str, int]]:
    rows = fleet.admin().call("GET", "/api/intents?backend=echo").json()
    return [(row["state"], row["attempts"]) for row in rows]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param((refuse, Proxy.cut), id="cut-off"),
        pytest.param((Proxy.swallow,), id="it-hears-nothing"),
        pytest.param((Proxy.swallow_requests,), id="it-is-not-heard"),
    ],
)
def test_a_worker_cut_off_from_the_bus_costs_no_attempt_and_does_it_when_the_line_is_mended(
    fleet: Cluster, admin: Admin, bus_line: ProxyThread, cut: tuple[Callable[[Proxy], None], ...]
) -> None:
    """F-23, F-24."""
    digest = fleet.offer_image("echo", localai_files("1"))
    assert admin.call("POST", "/api/galleries/refresh").status == 200
    bus_line.do(*cut)
    job = fleet.begin("/api/backends/install/echo")
    admin.wait_for_status("one", "unhealthy")
    (node,) = fleet.operation(job)["nodes"]
    assert node["status"] in ("queued", "downloading", "running_on_worker"), node
    bus_line.do(Proxy.mend, Proxy.cut)
    fleet.wait_for_operation(job, within_s=60)
    assert attempts(fleet) == [("succeeded", 0)]
    fleet.wait_for_digests("echo", {"one": digest})


def test_a_delete_whose_answer_was_lost_is_done_when_the_worker_reports_again(
    fleet: Cluster, admin: Admin, bus_line: ProxyThread
) -> None:
    fleet.offer_image("echo", localai_files("1"))
    assert admin.call("POST", "/api/galleries/refresh").status == 200
    fleet.wait_for_operation(fleet.begin("/api/backends/install/echo"))
    installed = fleet.worker_dir("one") / "backends" / "echo" / "current"
    assert installed.exists()
    bus_line.do(Proxy.swallow_requests)
    job = fleet.begin("/api/backends/delete/echo")
    wait_until(lambda: not installed.exists(), what="the worker has deleted it", within_s=30)
    assert fleet.operation(job)["state"] == "running"
    bus_line.do(Proxy.mend, Proxy.cut)
    fleet.wait_for_operation(job, within_s=20)  # its answer would be waited for much longer
    assert [row for row in attempts(fleet) if row[0] == "succeeded"] == [("succeeded", 0)] * 2


def test_a_frontend_without_a_bus_admits_and_another_carries_out(fleet: Cluster, bus_line: ProxyThread) -> None:
    """F-28: every hint is lost, and both frontends tell the same."""
    digest = fleet.offer_image("echo", localai_files("1"))
    admin = fleet.start_frontend("a", "--auto-approve")
    cut_off = fleet.start_frontend("b", CORRAL_BUS=f"nats://127.0.0.1:{bus_line.port}")
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    bus_line.do(refuse, Proxy.cut)
    wait_until(lambda: cut_off.call("GET", "/readyz").status == 503, what="the frontend says that it has no bus")
    job = fleet.begin("/api/backends/install/echo", frontend="b")
    fleet.wait_for_operation(job, frontend="b")
    assert fleet.operation(job, frontend="a") == fleet.operation(job, frontend="b")
    assert fleet.digests("echo", frontend="a") == fleet.digests("echo", frontend="b") == {"one": digest}


@pytest.fixture
def store_line(request: pytest.FixtureRequest, store: str) -> Iterator[ProxyThread]:
    if not store.startswith("postgresql"):
        pytest.skip("a file has no line that could be cut")
    server: Postgres = request.getfixturevalue("postgres")
    line = ProxyThread(server.port)
    yield line
    line.stop()


def start_on(fleet: Cluster, store: str, line: ProxyThread) -> Admin:
    """A frontend whose store is at the end of the line, and one that reaches it directly, for looking."""
    database = store.rpartition("/")[2]
    admin = fleet.start_frontend(
        "a", "--auto-approve", CORRAL_STORE=f"postgresql://corral@127.0.0.1:{line.port}/{database}"
    )
    fleet.start_worker("one")
    admin.wait_for_status("one", "healthy")
    return admin


def test_a_slow_store_kills_nobody_and_loses_nothing(fleet: Cluster, store: str, store_line: ProxyThread) -> None:
    """F-12."""
    digest = fleet.offer_image("echo", localai_files("1"))
    admin = start_on(fleet, store, store_line)

    def slow(proxy: Proxy) -> None:
        proxy.delay_s = 0.2

    store_line.do(slow)
    job = fleet.begin("/api/backends/install/echo")
    fleet.wait_for_operation(job, within_s=90)
    assert admin.nodes()["one"]["status"] == "healthy"
    assert attempts(fleet) == [("succeeded", 0)]
    fleet.wait_for_digests("echo", {"one": digest})


def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    fleet: Cluster, store: str, store_line: ProxyThread
) -> None:
    """F-15, F-01: whoever asks again with the same key gets the same operation."""
    fleet.offer_image("echo", localai_files("1"))
    admin = start_on(fleet, store, store_line)
    jobs = []
    for turn in range(6):
        store_line.do(lambda proxy: proxy.cut_when_sent(b"COMMIT", forward=True))
        key = f"request-{turn}"
        path = f"/api/backends/{'install' if turn % 2 == 0 else 'delete'}/echo"

        def ask(path: str = path, key: str = key) -> str | None:
            answer = fleet.post(path, key=key)
            assert answer.status in (200, 202, 503, 504), answer.body
            return str(answer.json()["jobID"]) if answer.status < 300 else None

        job = wait_until(ask, what="it is admitted", within_s=30)
        assert ask() == job
        wait_until(lambda: store_line.proxy.did_cut.is_set() or None, what="an answer to a commit was lost")
        jobs.append(job)
    assert len(set(jobs)) == 6
    wait_until(
        lambda: all(fleet.operation(job)["state"] != "running" for job in jobs) or None, what="all end", within_s=60
    )
    ended = admin.call("GET", "/api/operations/history").json()["operations"]
    assert sorted(row["jobID"] for row in ended) == sorted(jobs), "no operation twice"
    fleet.wait_for_digests("echo", {})
