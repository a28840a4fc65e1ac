"""Real engines that die in the middle of an answer: another replica continues it, and the client sees only a pause."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.programs import Admin
from harness.tiny_model import Shelf, write_weights

TOKENS = 1000
"""Far more than an engine says before it is killed, however late that is."""
CONTEXT = 2048
LETTERS_ONLY = [[token, False] for token in (0, 1, 2, *range(3, 259))]
"""The tiny model would also say bytes that are no text, and end at once."""
GREEDY = {"temperature": 0, "repeat_penalty": 1.3, "repeat_last_n": 32, "logit_bias": LETTERS_ONLY}
PROMPT = "abcdefgh"


@pytest.fixture(scope="session")
def slow_shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """A model that takes some milliseconds for a token, so that its answers last."""
    path = write_weights(tmp_path_factory.mktemp("slow") / "slow.gguf", size=256, layers=8, hidden=1024)
    running = Shelf(path.read_bytes())
    yield running
    running.close()


def serve(cluster: Cluster, shelf: Shelf, workers: int) -> Admin:
    admin = cluster.start_frontend("a")
    for number in range(workers):
        cluster.start_worker(f"w{number}")
    config = shelf.config("slow", threads=1).replace("context_size: 256", f"context_size: {CONTEXT}")
    assert admin.call("POST", "/api/models", body={"config": config}).status == 201
    wanted = {"model_name": "slow", "min_replicas": workers, "spread_all": False}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    cluster.wait_for_ready("slow", workers)
    return admin


class Stream:
    """An answer, event by event."""

    def __init__(self, admin: Admin, path: str, body: dict[str, Any], **headers: str) -> None:
        address = urlsplit(admin.url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
        self._connection.request(
            "POST",
            path,
            json.dumps({"model": "slow", "stream": True, **body}),
            {
                "Authorization": f"Bearer {ADMIN_KEY}",
                "Content-Type": "application/json",
                "X-Corral-Client": "test",
                **headers,
            },
        )
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.node = self.answer.headers["x-corral-node"]

    def events(self) -> Iterator[str]:
        for line in self.answer:
            if line.startswith(b"data: "):
                yield line.decode().removeprefix("data: ").rstrip("\n")
        self._connection.close()


def kill_engine(cluster: Cluster, node: str) -> None:
    for pid in cluster.engines(node):
        os.kill(pid, signal.SIGKILL)


CHAT = "/v1/chat/completions"
CHAT_BODY = {
    "messages": [{"role": "user", "content": PROMPT}],
    "max_tokens": TOKENS,
    "stream_options": {"include_usage": True},
    **GREEDY,
}


def read_chat(stream: Stream, *, at: int = 0, act: Any = None) -> list[dict[str, Any]]:
    """Acts once `at` events have come."""
    events: list[str] = []
    for event in stream.events():
        events.append(event)
        if len(events) == at:
            act()
    assert events.pop() == "[DONE]", events[-1]
    return [json.loads(event) for event in events]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


def usage_of(events: list[dict[str, Any]]) -> dict[str, int]:
    [usage] = [event["usage"] for event in events if event.get("usage")]
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}


@pytest.mark.parametrize("cluster", ["sqlite"], indirect=True)
def test_a_chat_whose_engine_is_killed_goes_on_at_another_replica(cluster: Cluster, slow_shelf: Shelf) -> None:
    admin = serve(cluster, slow_shelf, 2)
    whole = read_chat(Stream(admin, CHAT, CHAT_BODY))
    stream = Stream(admin, CHAT, CHAT_BODY)
    events = read_chat(stream, at=10, act=lambda: kill_engine(cluster, stream.node))
    assert text_of(events) == text_of(whole)
    assert usage_of(events) == usage_of(whole)
    assert usage_of(whole)["completion_tokens"] == TOKENS
    assert len({event["id"] for event in events}) == 1
    why = admin.call("GET", f"/api/why/requests/{stream.answer.headers['x-request-id']}").json()
    assert why["continuations"] == 1, why
    [failed] = why["failed"]
    assert failed["node"] == stream.node
