"""What a real engine does not have."""

from typing import Any

import pytest

from harness.cluster import Cluster
from harness.tiny_model import Shelf


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_chat_model_asked_to_speak_draw_or_rank_says_that_it_cannot(cluster: Cluster, shelf: Shelf) -> None:
    admin = cluster.start_frontend()
    cluster.start_worker("w1")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    asked: dict[str, dict[str, Any]] = {
        "/v1/audio/speech": {"input": "hi", "voice": "v"},
        "/v1/images/generations": {"prompt": "a horse"},
        "/v1/rerank": {"query": "horse", "documents": ["a", "b"]},
    }
    for path, body in asked.items():
        answer = admin.call("POST", path, body={"model": "tiny", **body}, within_s=90)
        error = answer.json()["error"]
        assert (answer.status, error["code"], error["param"]) == (404, "endpoint_not_supported", "model"), answer.body
        assert f"'tiny' does not support {path}" in error["message"]
