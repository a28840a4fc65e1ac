"""Sends malformed requests to every route in a frontend's OpenAPI document: nothing crashes."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from harness.frontend import Frontend
from harness.hostile_requests import Got, Operation, Sent, described, requests_for, send
from harness.nats import Nats

EXAMPLES = int(os.environ.get("CORRAL_FUZZ_EXAMPLES", "5"))
OPEN_ANSWERS = frozenset({"/healthz", "/readyz"})
MODEL_CALL = {
    "type": "object",
    "properties": {
        "model": {"type": "string"}, "stream": {"type": "boolean"}, "messages": {"type": "array"},
        "max_tokens": {"type": "integer"}, "prompt": {"type": "string"}, "input": {"type": "string"},
    },
}  # fmt: skip
OF_THE_LANE = tuple(
    Operation(method, path, body=MODEL_CALL)
    for method, path in (
        ("POST", "/v1/chat/completions"), ("POST", "/v1/embeddings"), ("POST", "/v1/audio/transcriptions"),
        ("GET", "/v1/models"), ("GET", "/v1/models/%00"), ("POST", "/v1/%ff"), ("POST", "/v1/../api/nodes"),
    )
)  # fmt: skip
AROUND = tuple(
    Operation(method, path)
    for method, path in (
        ("GET", "/"), ("GET", "/assets/%00"), ("GET", "/%2e%2e/%2e%2e/etc/passwd"), ("GET", "//"), ("GET", "*"),
        ("GET", "http://other.example/api/nodes"), ("GET", "/api/%00"), ("POST", "/api/session"), ("GET", "/\xff"),
        ("GET", "/openapi.json"), ("GET", "/metrics"), ("GET", "/api"), ("DELETE", "/api/keys/%00"),
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile_frontend(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    """Its own, for what is done to it. It has a node and a model, so that there is something to ask about."""
    running = Frontend(tmp_path_factory.mktemp("hostile-frontend"), nats_for_module, "--auto-approve")
    assert running.register(name="tiny").status == 201
    running.admin.call("POST", "/api/models", body={"name": "tiny", "backend": "llama-cpp"})
    yield running
    assert running.program.stop() == 0


def key_for(frontend: Frontend, who: str) -> str | None:
    if who == "nobody":
        return None
    if who == "an administrator":
        return frontend.admin.key
    answer = frontend.admin.call("POST", "/api/keys", body={"name": "fuzz", "scope": "user"})
    assert answer.status in (200, 201), answer.body
    secret: str = next(value for name, value in answer.json().items() if name in ("key", "secret"))
    return secret


def check(sent: Sent, got: Got | None, who: str) -> None:
    if got is None:
        return
    context = f"{who}: {sent} -> {got.status} {got.body[:300]!r}"
    assert got.status != 500, context
    assert got.status < 500 or got.content_type.startswith(("application/json", "text/plain")), context
    assert b"Traceback" not in got.body, context
    path = sent.target.partition("?")[0]
    is_page = got.content_type.startswith("text/html")
    if who == "nobody" and got.status < 300 and path not in OPEN_ANSWERS:
        # Pages and their files are for everybody; nothing else is.
        assert is_page or path.startswith(("/assets/", "/favicon")) or path == "/api/session", context
    if who == "a user" and got.status < 300 and path.startswith("/api/"):
        assert path.startswith("/api/session"), context


def outcome_lines(log: str) -> list[str]:
    return [line for line in log.splitlines() if "Traceback" in line or "crashed" in line or "Exception in" in line]


@pytest.mark.parametrize("who", ["nobody", "a user", "an administrator"])
def test_no_request_makes_a_frontend_crash(hostile_frontend: Frontend, who: str) -> None:
    frontend = hostile_frontend
    port = int(frontend.url.rpartition(":")[2])
    openapi: dict[str, Any] = frontend.admin.call("GET", "/openapi.json").json()
    key = key_for(frontend, who)
    operations = [*described(openapi), *OF_THE_LANE, *AROUND]
    assert len(operations) > 80
    for operation in operations:

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES == 5,
            phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(requests_for(operation, openapi, key=key))
        def ask(sent: Sent) -> None:
            check(sent, send(port, sent), who)

        ask()
    assert frontend.program.process.poll() is None
    assert not outcome_lines(frontend.program.output()), frontend.program.output()[-20_000:]
    assert frontend.admin.call("GET", "/api/nodes").status == 200
