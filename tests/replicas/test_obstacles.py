"""Requests for models that no node can ever take: refused at once, with the reason."""

import openai
import pytest

from harness.cluster import ADMIN_KEY, Cluster, ask
from harness.machine_speed import promised
from harness.programs import Admin
from harness.tiny_model import Shelf

AT_ONCE_S = 15.0
"""A fraction of the 60 seconds that a request may wait for a load."""


def client_of(admin: Admin) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{admin.url}/v1", api_key=ADMIN_KEY)


def add(admin: Admin, config: str) -> None:
    added = admin.call("POST", "/api/models", body={"config": config})
    assert added.status == 201, added.body


def refused(admin: Admin, model: str) -> str:
    """The reason. The official client repeats requests with status 503 unless it is told not to."""
    with (
        client_of(admin) as client,
        promised("a refusal at once", within_s=AT_ONCE_S),
        pytest.raises(openai.InternalServerError) as error,
    ):
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
    assert (error.value.status_code, error.value.code) == (503, "model_cannot_load")
    assert error.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in error.value.response.headers
    return error.value.message


def test_what_can_never_be_loaded_is_refused_at_once_and_the_rest_waits(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    add(admin, shelf.config("tiny", threads=1))
    assert "the cluster has no nodes" in refused(admin, "tiny")

    cluster.start_worker("w1")
    add(admin, "name: ghost\nbackend: no-such-backend\nparameters: {model: a.gguf}\n")
    assert "no-such-backend" in refused(admin, "ghost")
    message = {"model": "ghost", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
    in_anthropic = admin.call("POST", "/v1/messages", body=message)
    assert in_anthropic.json()["type"] == "error"
    assert "no-such-backend" in in_anthropic.json()["error"]["message"]

    picky = {"model_name": "picky", "node_selector": {"tier": "fast"}}
    add(admin, shelf.config("picky", threads=1))
    assert admin.call("POST", "/api/nodes/scheduling", body=picky).status == 200
    assert "its label tier is not set, not fast" in refused(admin, "picky")

    assert admin.call("DELETE", "/api/nodes/scheduling/picky").status == 204
    assert ask(admin, "picky", max_tokens=2).status == 200, "the obstacle is gone, and nothing else must be done"


def test_a_model_that_no_node_has_memory_for_is_refused_at_once(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    node_id = admin.nodes()["w1"]["id"]
    add(admin, shelf.config("tiny", threads=1))
    assert ask(admin, "tiny", max_tokens=2).status == 200
    assert admin.call("POST", "/api/models/tiny/unload").status == 200
    cluster.wait_for_ready("tiny", 0)
    assert admin.call("PUT", f"/api/nodes/{node_id}/vram-budget", body={"value": "1MiB"}).status == 200
    assert "within its budget of 1MiB" in refused(admin, "tiny")


def test_a_node_that_is_away_and_could_take_the_model_is_waited_for(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    add(admin, shelf.config("tiny", threads=1))
    cluster.workers["w1"].stop()
    cluster.wait_for(lambda: admin.nodes()["w1"]["status"] == "offline", "it is away")
    short = admin.call(
        "POST",
        "/v1/chat/completions",
        body={"model": "tiny", "messages": [{"role": "user", "content": "hi"}]},
        headers={"X-Corral-Load-Wait": "4"},
    )
    assert (short.status, short.json()["error"]["code"]) == (503, "model_loading")
