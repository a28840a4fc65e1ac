"""Many ask for a cold model at once, at any frontend; some of those that carry the load out die."""

import asyncio
import time

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.programs import Admin, clean_environment, run_cli
from harness.tiny_model import Shelf
from harness.traffic import post_chat
from harness.waiting import wait_until


async def crowd(urls: list[str], model: str, count: int) -> list[int]:
    asked = (post_chat(urls[number % len(urls)], ADMIN_KEY, model) for number in range(count))
    return [posted.status for posted in await asyncio.gather(*asked)]


def test_a_hundred_requests_at_three_frontends_make_one_load(cluster: Cluster, shelf: Shelf) -> None:
    """F-41."""
    admins = [cluster.start_frontend(name) for name in ("a", "b", "c")]
    cluster.start_worker("w1", "--max-replicas-per-model", "4", bare=True)
    cluster.start_worker("w2", "--max-replicas-per-model", "4", bare=True)
    assert admins[0].call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    for admin in admins:
        wait_until(lambda: admin.call("GET", "/v1/models").json()["data"], what="every frontend knows the model")  # noqa: B023
    statuses = asyncio.run(crowd([admin.url for admin in admins], "tiny", 100))
    assert statuses == [200] * 100
    assert len(cluster.replicas("tiny")) == 1
    logs = "".join((cluster.directory / f"{name}.log").read_text() for name in ("w1", "w2"))
    assert (logs.count("artifact.installed"), logs.count("process.launched")) == (1, 1)
    told_of_at_another_frontend(admins[0], admins[1])


def told_of_at_another_frontend(asked: Admin, other: Admin) -> None:
    request_id = ask(asked, "tiny").headers["x-request-id"]
    why = other.call("GET", f"/api/why/requests/{request_id}").json()
    assert (why["model"], why["state"], why["status"], why["rule"]) == ("tiny", "answered", 200, "only")
    where = clean_environment(CORRAL_URL=other.url, CORRAL_API_KEY=ADMIN_KEY)
    said = run_cli("why", "request", request_id, environment=where)
    assert said.returncode == 0, said.stderr
    assert f"sent to {why['chosen']['node']}, slot 0: the only available replica" in said.stdout
    assert other.call("GET", "/api/why/requests/gone-1").status == 404


def test_a_load_outlives_the_frontend_that_began_it(cluster: Cluster, shelf: Shelf) -> None:
    first = cluster.start_frontend("a")
    second = cluster.start_frontend("b")
    cluster.start_worker("w1", frontend="b", bare=True)
    assert first.call("POST", "/api/models", body={"config": shelf.config("tiny")}).status == 201
    assert first.call("POST", "/api/models/tiny/load").status == 202
    wait_until(lambda: cluster.replicas("tiny", "b"), what="it has its place", within_s=30)
    cluster.frontends["a"].kill()
    wait_until(lambda: cluster.ready("tiny", "b"), what="another frontend finishes it", within_s=60)
    assert ask(second, "tiny").status == 200
    assert len(cluster.replicas("tiny", "b")) == 1


def test_what_cannot_be_satisfied_is_said_once_and_wakes_on_new_capacity(cluster: Cluster, shelf: Shelf) -> None:
    """F-45."""
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny")}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": 2, "node_selector": {"room": "b"}}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200

    def unsatisfiable() -> str | None:
        reason: str | None = admin.call("GET", "/api/nodes/scheduling/tiny").json().get("unsatisfiable_reason")
        return reason

    assert "label room is not set" in wait_until(unsatisfiable, what="the reason is shown")
    before = (cluster.directory / "a.log").read_text().count("load.waits")
    time.sleep(1.5)  # a cool-down in which nothing may be tried over and over
    assert (cluster.directory / "a.log").read_text().count("load.waits") - before <= 2
    began = time.monotonic()
    cluster.start_worker("w2", "--labels", "room=b", "--max-replicas-per-model", "2")
    cluster.wait_for_ready("tiny", 2)
    print(f"satisfied {time.monotonic() - began:.1f} s after the new machine was started")
    assert unsatisfiable() is None


def test_one_on_every_matching_node(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    for name in ("w1", "w2"):
        cluster.start_worker(name, "--max-replicas-per-model", "3")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny")}).status == 201
    wanted = {"model_name": "tiny", "spread_all": True}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).json()["spread_all"] is True
    rows = cluster.wait_for_ready("tiny", 2)
    assert len({row["node_id"] for row in rows}) == 2
    taken = shelf.gets
    cluster.start_worker("w3")
    rows = cluster.wait_for_ready("tiny", 3)
    assert len({row["node_id"] for row in rows}) == 3
    assert shelf.gets == taken, "the weights came from a machine that had them"
