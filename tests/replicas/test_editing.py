"""A model that serves is edited under a stream of requests: no mistake and no load is noticed by any of them."""

import time
from typing import Any

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.echo_cluster import start_echo_worker
from harness.programs import Admin, Answer, clean_environment, run_cli
from harness.traffic import Traffic
from harness.waiting import wait_until

CONFIG = "name: tiny\nbackend: echo\ntemplate: {use_tokenizer_template: true}\n"


@pytest.fixture
def cluster(cluster_without_engine: Cluster) -> Cluster:
    return cluster_without_engine


def cli(admin: Admin, *words: str) -> str:
    done = run_cli(*words, environment=clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY))
    return done.stdout + done.stderr


def edit(admin: Admin, more: str, **extra: Any) -> Answer:
    return admin.call("PUT", "/api/models/tiny", body={"config": CONFIG + more, **extra})


def pending(admin: Admin) -> dict[str, Any] | None:
    found: dict[str, Any] | None = admin.call("GET", "/api/models/tiny").json()["pending"]
    return found


def served_by(admin: Admin) -> str:
    return ask(admin, "tiny", messages=[{"role": "user", "content": "options?"}]).body.decode()


def refuses_mistakes(admin: Admin) -> None:
    wrong = admin.call("PUT", "/api/models/tiny", body={"config": CONFIG.replace("echo", "echoo")})
    assert (wrong.status, "did you mean echo" in wrong.message) == (400, True), wrong.body
    unknown = edit(admin, "context_sizee: 9\n")
    assert (unknown.status, "context_sizee (did you mean context_size?)" in unknown.message) == (400, True)
    assert edit(admin, "made_up: 1\n", force=True).status == 200
    assert edit(admin, "made_up: 1\nthreads: 3\n").status == 200, "what was let in is not asked about again"


def keeps_what_cannot_be_loaded(admin: Admin, cluster: Cluster) -> None:
    [before] = cluster.ready("tiny")
    assert edit(admin, "options: [fail]\n").json()["pending"]["serving"] == before["config_revision"]
    told = wait_until(lambda: (found := pending(admin)) and found["reason"] and found, what="it failed", within_s=60)
    assert "there is not enough memory" in told["reason"]
    assert [row["id"] for row in cluster.ready("tiny")] == [before["id"]]
    listed, shown = cli(admin, "models", "list"), cli(admin, "models", "show", "tiny")
    assert f"revision {told['revision'][:12]} pending: " in listed
    assert f"revision {told['serving'][:12]} is serving" in shown
    assert "there is not enough memory" in shown


def takes_a_good_one_over(admin: Admin, cluster: Cluster, traffic: Traffic) -> float:
    """How long it was loaded."""
    gate = cluster.gates / "gate"
    [before] = cluster.ready("tiny")
    began_s, answered = time.monotonic(), traffic.fates["200"]
    assert edit(admin, f"options: ['until:{gate}']\n").status == 200
    wait_until(
        lambda: any(row["corral_state"] in ("starting", "loading") for row in cluster.replicas("tiny")),
        what="it is being loaded",
        within_s=60,
    )
    wait_until(lambda: traffic.fates["200"] > answered + 100, what="requests are answered meanwhile", within_s=60)
    assert [row["id"] for row in cluster.ready("tiny")] == [before["id"]]
    took_s = time.monotonic() - began_s
    gate.touch()

    def switched() -> bool:
        rows = cluster.replicas("tiny")
        return len(rows) == 1 and rows[0]["id"] != before["id"] and rows[0]["corral_state"] == "ready"

    wait_until(switched, what="only the new revision runs", within_s=60)
    assert pending(admin) is None
    assert str(gate) in served_by(admin)
    return took_s


def test_an_edit_of_a_model_that_serves_is_not_noticed(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "w1")
    assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    assert ask(admin, "tiny").status == 200
    [first] = cluster.wait_for_ready("tiny", 1)
    with Traffic(admin.url, ADMIN_KEY, "tiny", per_s=20) as traffic:
        wait_until(lambda: traffic.fates["200"] > 20, what="requests are answered", within_s=60)
        refuses_mistakes(admin)
        wait_until(lambda: pending(admin) is None, what="the change of threads serves", within_s=60)
        wait_until(lambda: len(cluster.replicas("tiny")) == 1, what="the one before has ended", within_s=60)

        [second] = cluster.ready("tiny")
        assert second["id"] != first["id"]
        assert edit(admin, "threads: 3\ndescription: small\nstopwords: [zebra]\n").json()["pending"] is None
        wait_until(lambda: "zebra" in served_by(admin), what="requests have the new stop word", within_s=10)
        assert [row["id"] for row in cluster.replicas("tiny")] == [second["id"]], "the same process serves it"

        keeps_what_cannot_be_loaded(admin, cluster)
        took_s = takes_a_good_one_over(admin, cluster, traffic)

        [third] = cluster.ready("tiny")
        keeps_what_cannot_be_loaded(admin, cluster)
        assert "is discarded; revision" in cli(admin, "models", "revert", "tiny")
        assert pending(admin) is None
        assert [row["id"] for row in cluster.ready("tiny")] == [third["id"]]
    print(f"{traffic.fates['200']} answers, the slowest after {traffic.slowest_s:.2f} s; one load took {took_s:.1f} s")
    assert traffic.errors == {}
    assert traffic.slowest_s < took_s / 2, "no request waited for a load"
