"""A machine that cannot load a model for a reason of its own, and others that can."""

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.echo_cluster import add_echo_models, repair_echo_worker, start_echo_worker
from harness.gated_files import GatedFiles
from harness.programs import Admin, clean_environment, run_cli
from harness.waiting import wait_until


@pytest.fixture
def cluster(cluster_without_engine: Cluster) -> Cluster:
    return cluster_without_engine


def cli(admin: Admin, *words: str) -> str:
    done = run_cli(*words, environment=clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY))
    return done.stdout + done.stderr


def test_whoever_waits_is_served_by_another_node_and_the_one_that_failed_cools_down(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "good")
    add_echo_models(admin, "first", "horse")
    assert ask(admin, "first").status == 200, "so that the other one, idle, is the better place"
    start_echo_worker(cluster, "bad", dies=True)
    answer = ask(admin, "horse")
    assert answer.status == 200, answer.body
    why = admin.call("GET", "/api/why/models/horse").json()
    [setback] = why["backoffs"]
    assert (setback["node"], setback["failures"]) == ("bad", 1)
    second, first = why["decisions"]
    assert [one["node"] for one in first["candidates"] if one["verdict"] == "chosen"] == ["bad"]
    [bad] = [one for one in second["candidates"] if one["node"] == "bad"]
    assert bad["reason"].startswith("load failed on this node; next attempt after"), bad
    told = cli(admin, "why", "model", "horse")  # on a slow machine, the time is over by now
    assert "Failed on bad, cooling down until" in told or "Failed on bad, other nodes are preferred" in told, told
    assert (cluster.directory / "a.log").read_text().count("load.failed_here") == 1


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_download_that_one_machine_cannot_make_is_made_by_another(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "good")
    add_echo_models(admin, "first")
    assert ask(admin, "first").status == 200, "so that the other one, idle, is the better place"
    start_echo_worker(cluster, "bad", "--trusted-hosts", "nowhere.example")
    web = GatedFiles({"weights": b"the weights"})
    web.let_go("weights")
    try:
        add_echo_models(admin, "horse", more=f"download_files: [{web.download('horse/model.gguf', 'weights')}]\n")
        answer = ask(admin, "horse")
    finally:
        web.stop()
    assert answer.status == 200, answer.body
    [setback] = admin.call("GET", "/api/why/models/horse").json()["backoffs"]
    assert setback["node"] == "bad"
    assert setback["error"].startswith("bad could not get the weights of horse: 127.0.0.1 is this machine")


def test_when_every_machine_failed_the_waiters_get_the_causes_and_nothing_is_tried_in_haste(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    for name in ("bad", "worse"):
        start_echo_worker(cluster, name, dies=True)
    add_echo_models(admin, "horse")
    answer = ask(admin, "horse")
    assert answer.status == 503, answer.body
    for name in ("bad", "worse"):
        assert f"{name} could not start horse" in answer.message
    assert ask(admin, "horse").status == 503
    assert (cluster.directory / "a.log").read_text().count("load.failed_here") == 2, "each was tried once"
    assert "worse cannot take horse: load failed on" in cli(admin, "models", "load", "horse", "--node", "worse")
    assert (cluster.directory / "a.log").read_text().count("load.failed_here") == 3, "it was wanted once more there"
    repair_echo_worker(cluster, "bad")
    assert "horse: loaded" in cli(admin, "models", "load", "horse"), "it does not have to wait"


def test_a_machine_that_joins_takes_what_the_others_failed(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "bad", dies=True)
    add_echo_models(admin, "horse")
    assert ask(admin, "horse").status == 503
    start_echo_worker(cluster, "good")
    wait_until(lambda: ask(admin, "horse").status == 200, what="a machine that has not failed it serves it")


def test_the_listing_shows_why_fewer_run_than_are_desired(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "good")
    add_echo_models(admin, "horse")
    assert ask(admin, "horse").status == 200
    scheduling = {"model_name": "horse", "min_replicas": 2, "max_replicas": 2}
    assert admin.call("POST", "/api/nodes/scheduling", body=scheduling).status == 200

    def note() -> str:
        return cli(admin, "models", "list").splitlines()[1]

    wait_until(lambda: "good: already runs 1 replica of this model" in note(), what="it waits for a place", within_s=20)
    assert "(next attempt at " in note()
    start_echo_worker(cluster, "bad", dies=True)
    wait_until(lambda: "bad could not start horse" in note(), what="it backs off", within_s=40)
    wait_until(lambda: "(next attempt at " in note(), what="it is told until when")
