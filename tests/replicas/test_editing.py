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


def keeps_what_does_not_serve(admin: Admin, cluster: Cluster, option: str, reason: str) -> None:
    """One that cannot be loaded, or is loaded and then answers nothing."""
    [before] = cluster.ready("tiny")
    assert edit(admin, f"options: [{option}]\n").json()["pending"]["serving"] == before["config_revision"]
    told = wait_until(lambda: (found := pending(admin)) and found["failures"] and found, what="it failed", within_s=60)
    assert reason in told["reason"]
    assert [row["id"] for row in cluster.ready("tiny")] == [before["id"]]
    said = f"revision {told['number']} failed: "
    fixed = "models edit tiny`, or discard it with `"
    for words in (("models", "list"), ("models", "show", "tiny"), ("why", "tiny")):
        shown = cli(admin, *words).replace("Revision", "revision")
        assert said in shown
        assert reason in shown
        assert fixed in shown
    listed = cli(admin, "models", "history", "tiny").splitlines()
    assert (listed[1].split()[0], "failed" in listed[1], reason in listed[1]) == (str(told["number"]), True, True)
    assert [line.split()[2] for line in listed[2:]].count("current") == 1
    changed = cli(admin, "models", "history", "tiny", str(told["number"]))
    assert f'+ options: ["{option}"]' in changed
    events = admin.call("GET", "/api/audit?limit=20").json()
    failed = next(event for event in events if event["action"] == "model.revision_failed")
    assert (failed["detail"]["number"], reason in failed["detail"]["reason"]) == (told["number"], True)


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


def goes_back(admin: Admin, cluster: Cluster) -> None:
    """To a revision by its number: it is loaded and tried as any other."""
    told = cli(admin, "models", "rollback", "tiny", "--to", "3", "--comment", "fewer threads")
    assert "keeps serving until a replica with it answers" in told
    wait_until(lambda: pending(admin) is None, what="the earlier configuration serves again", within_s=60)
    [now] = [one for one in admin.call("GET", "/api/models/tiny/revisions").json() if one["state"] == "current"]
    assert now["comment"] == "rollback to revision 3: fewer threads"
    assert "threads: 3" in now["config"]
    wait_until(lambda: len(cluster.replicas("tiny")) == 1, what="the one before has ended", within_s=60)


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

        keeps_what_does_not_serve(admin, cluster, "fail", "there is not enough memory")
        took_s = takes_a_good_one_over(admin, cluster, traffic)

        [third] = cluster.ready("tiny")
        keeps_what_does_not_serve(admin, cluster, "mute", "the weights are damaged")
        assert "is discarded; revision" in cli(admin, "models", "rollback", "tiny")
        assert pending(admin) is None
        assert [row["id"] for row in cluster.ready("tiny")] == [third["id"]]

        goes_back(admin, cluster)
    print(f"{traffic.fates['200']} answers, the slowest after {traffic.slowest_s:.2f} s; one load took {took_s:.1f} s")
    assert traffic.errors == {}
    assert traffic.slowest_s < took_s / 2, "no request waited for a load"


def test_an_edit_goes_on_when_the_frontend_that_loads_it_is_killed(cluster: Cluster) -> None:
    first = cluster.start_frontend()
    start_echo_worker(cluster, "w1")
    assert first.call("POST", "/api/models", body={"config": CONFIG}).status == 201
    assert ask(first, "tiny").status == 200
    [before] = cluster.wait_for_ready("tiny", 1)
    gate = cluster.gates / "gate"
    assert edit(first, f"options: ['until:{gate}']\n").json()["pending"]["serving_number"] == 1
    wait_until(
        lambda: any(row["corral_state"] in ("starting", "loading") for row in cluster.replicas("tiny")),
        what="the only frontend loads it",
        within_s=60,
    )
    other = cluster.start_frontend("b")
    cluster.frontends["a"].kill()
    assert ask(other, "tiny").status == 200, "the revision before serves"
    gate.touch()
    wait_until(lambda: pending(other) is None, what="the other frontend has brought it to its end", within_s=90)
    wait_until(lambda: str(gate) in served_by(other), what="requests get the new one", within_s=10)
    states = [(one["number"], one["state"]) for one in other.call("GET", "/api/models/tiny/revisions").json()]
    assert states == [(2, "current"), (1, "superseded")]
    assert before["id"] not in [row["id"] for row in rows_of(other) if row["corral_state"] == "ready"]


def rows_of(admin: Admin) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = admin.call("GET", "/api/replicas").json()
    return rows
