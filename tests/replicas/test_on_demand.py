"""From "not loaded" to "served": a real engine, real weights."""

from harness.cluster import Cluster, stream_chat


def test_a_request_for_a_model_on_demand_is_answered(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1", bare=True)
    assert admin.call("POST", "/api/models/install", body={"name": "smollm2"}).status == 201
    said = "".join(stream_chat(admin.url, "smollm2", "Say hello."))
    assert said.strip()
    [replica] = cluster.ready("smollm2")
    assert (replica["state"], replica["replica_index"]) == ("loaded", 0)
    [install] = admin.call("GET", "/api/operations/history").json()["operations"]
    told = [install[field] for field in ("verb", "name", "actor", "cause", "outcome")]
    assert told == ["install", "llama-cpp", "corral", "load of smollm2", "completed"], "nobody asked, so it is said"


def test_loading_by_hand_and_unloading(cluster: Cluster) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models/install", body={"name": "smollm2"}).status == 201
    loaded = admin.call("POST", "/api/models/smollm2/load", body={"wait_s": 60}, within_s=90)
    assert (loaded.status, loaded.json()) == (200, {"message": "loaded"})
    cluster.wait_for_ready("smollm2", 1)
    assert [event["action"] for event in admin.call("GET", "/api/audit").json()].count("model.load_requested") == 1
    why = admin.call("GET", "/api/why/models/smollm2").json()
    assert why["decisions"][0]["candidates"][0]["verdict"] == "chosen"
    assert admin.call("POST", "/api/models/smollm2/unload").status == 200
    cluster.wait_for_ready("smollm2", 0)
