"""`corral models load MODEL --node NODE`: there, or refused with the reason."""

import subprocess

import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.echo_cluster import add_echo_models, start_echo_worker
from harness.programs import Admin, clean_environment, run_cli


@pytest.fixture
def cluster(cluster_without_engine: Cluster) -> Cluster:
    return cluster_without_engine


def load(admin: Admin, node: str) -> "subprocess.CompletedProcess[str]":
    environment = clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY)
    return run_cli("models", "load", "horse", "--node", node, "--timeout", "60", environment=environment)


def on(cluster: Cluster, model: str = "horse") -> list[str]:
    nodes = {node["id"]: name for name, node in cluster.admin().nodes().items()}
    return sorted(nodes[row["node_id"]] for row in cluster.ready(model))


def test_a_model_is_loaded_on_the_node_that_was_named_also_beside_another(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    for name in ("w1", "w2"):
        start_echo_worker(cluster, name)
    add_echo_models(admin, "horse")
    for expected in (["w2"], ["w2"]):
        done = load(admin, "w2")
        assert (done.returncode, done.stdout) == (0, "horse: loaded on w2\n"), done.stderr
        assert on(cluster) == expected, "a second time changes nothing"
    assert load(admin, "w1").returncode == 0
    assert on(cluster) == ["w1", "w2"]


def test_a_node_that_cannot_take_it_is_refused_with_the_reason_and_nothing_stays(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "good")
    start_echo_worker(cluster, "bad", dies=True)
    add_echo_models(admin, "horse")
    unknown = load(admin, "godo")
    assert unknown.returncode != 0
    assert "no node 'godo'; did you mean good?" in unknown.stderr
    for _ in range(2):
        failed = load(admin, "bad")
        assert failed.returncode != 0
        assert "bad cannot take horse: load failed on this node; next attempt after" in failed.stderr, failed.stderr
        assert "bad could not start horse" in failed.stderr
    assert (cluster.directory / "a.log").read_text().count("load.failed_here") == 2, "each time somebody said so"
    assert admin.call("GET", "/api/why/models/horse").json()["loads"] == []
    assert ask(admin, "horse").status == 200, "others have nothing to do with it"
    scheduling = {"model_name": "horse", "min_replicas": 1, "max_replicas": 1}
    assert admin.call("POST", "/api/nodes/scheduling", body=scheduling).status == 200
    full = admin.call("POST", "/api/models/horse/load", body={"node": "bad"})
    assert (full.status, "max_replicas is 1" in full.message) == (409, True), full.body
    assert admin.call("POST", f"/api/nodes/{admin.nodes()['good']['id']}/drain").status == 200
    add_echo_models(admin, "pony")
    drained = admin.call("POST", "/api/models/pony/load", body={"node": "good"})
    assert (drained.status, "good cannot take pony: it is draining" in drained.message) == (409, True), drained.body
    missing = admin.call("POST", "/api/models/pony/load", body={"node": "nowhere"})
    assert missing.status == 404


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_why_finds_out_what_a_name_stands_for(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    start_echo_worker(cluster, "stable")
    start_echo_worker(cluster, "both")
    add_echo_models(admin, "horse", "both")
    request = ask(admin, "horse").headers["x-request-id"]
    environment = clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY)

    def why(*words: str) -> str:
        done = run_cli("why", *words, environment=environment)
        return done.stdout + done.stderr

    assert why("horse") == why("model", "horse")
    assert why("stable") == why("node", "stable")
    assert why(request) == why("request", request)
    assert "'both' is the name of a model and node; use `corral why model both` or" in why("both")
    assert "Did you mean horse?" in why("hoarse")
    assert "`corral why node NAME`, `corral why backend NAME`, `corral why request ID`" in why("zzz")
