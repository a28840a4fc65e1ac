"""A backend that models use is deleted: the delete holds, nobody fights over it, and an install undoes it."""

from typing import Any

from harness.cluster import ADMIN_KEY, Cluster
from harness.programs import Admin, Answer, clean_environment, run_cli
from harness.tiny_model import Shelf
from harness.waiting import wait_until

BY = "was deleted by key admin at "
AGAIN = "install it again with `corral backends install llama-cpp`"


def begin(cluster: Cluster, shelf: Shelf, *workers: str) -> Admin:
    admin = cluster.start_frontend()
    for name in workers:
        cluster.start_worker(name)
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    return admin


def schedule(admin: Admin, count: int) -> None:
    wanted = {"model_name": "tiny", "min_replicas": count, "max_replicas": count}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200


def chat(admin: Admin) -> Answer:
    body = {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
    return admin.call("POST", "/v1/chat/completions", body=body, within_s=90)


def orders(admin: Admin, node_id: str) -> list[str]:
    found = admin.call("GET", f"/api/intents?backend=llama-cpp&node_id={node_id}").json()
    return [intent["verb"] for intent in found]


def why(admin: Admin) -> dict[str, Any]:
    answer: dict[str, Any] = admin.call("GET", "/api/why/models/tiny").json()
    return answer


def test_a_delete_on_one_machine_moves_what_it_served(cluster: Cluster, shelf: Shelf) -> None:
    admin = begin(cluster, shelf, "w1", "w2")
    schedule(admin, 2)
    cluster.wait_for_ready("tiny", 2)
    cluster.start_worker("w3")
    ids = {name: node["id"] for name, node in admin.nodes().items()}
    asked = admin.call("GET", "/api/backends/llama-cpp/dependents?node=w2").json()
    assert asked == {"models": [{"model": "tiny", "replicas": 1}], "consequence": "tiny uses it: 1 replica stops"}
    deleted = admin.call("POST", "/api/backends/delete/llama-cpp", body={"nodes": ["w2"]}).json()
    assert deleted["consequence"] == "tiny uses it: 1 replica stops"

    def moved() -> bool:
        return {row["node_id"] for row in cluster.ready("tiny")} == {ids["w1"], ids["w3"]}

    wait_until(moved, what="it runs elsewhere", within_s=90)
    [w2] = [one for one in why(admin)["decisions"][0]["candidates"] if one["node"] == "w2"]
    assert w2["verdict"] == "ruled_out"
    assert "its backend llama-cpp was deleted from w2 by key admin at " in w2["reason"]
    assert orders(admin, ids["w2"]) == ["delete"]
    assert admin.call("GET", f"/api/nodes/{ids['w2']}/backends").json() == []


def test_a_delete_everywhere_is_shown_to_whoever_asks_and_undone_by_an_install(cluster: Cluster, shelf: Shelf) -> None:
    admin = begin(cluster, shelf, "w1")
    assert chat(admin).status == 200
    node_id = admin.nodes()["w1"]["id"]
    deleted = admin.call("POST", "/api/backends/delete/llama-cpp").json()
    assert deleted["models"] == [{"model": "tiny", "replicas": 1}]
    wait_until(lambda: admin.call("GET", f"/api/nodes/{node_id}/backends").json() == [], what="gone", within_s=60)
    wait_until(lambda: not cluster.replicas("tiny"), what="its replica stopped", within_s=60)
    for _ in range(3):
        refused = chat(admin)
        assert refused.status == 503, refused.body
        message = refused.json()["error"]["message"]
        assert f"its backend llama-cpp {BY}" in message
        assert AGAIN in message
    schedule(admin, 1)
    [load] = wait_until(lambda: why(admin)["loads"], what="the load waits", within_s=30)
    assert (load["state"], AGAIN in load["reason"]) == ("pending", True)
    wait_until(lambda: AGAIN in why(admin).get("unsatisfiable", ""), what="why model says so", within_s=30)
    assert (orders(admin, node_id), cluster.replicas("tiny")) == (["delete"], [])
    assert admin.call("POST", "/api/backends/install/llama-cpp").status == 200
    cluster.wait_for_ready("tiny", 1, within_s=120)
    assert chat(admin).status == 200


def test_the_command_shows_what_it_ends(cluster: Cluster, shelf: Shelf) -> None:
    admin = begin(cluster, shelf, "w1")
    assert chat(admin).status == 200
    where = clean_environment(CORRAL_URL=admin.url, CORRAL_API_KEY=ADMIN_KEY)
    ended = run_cli("backends", "delete", "llama-cpp", "--yes", environment=where)
    assert ended.returncode == 0, ended.stderr
    assert "tiny uses it: 1 replica stops." in ended.stderr
