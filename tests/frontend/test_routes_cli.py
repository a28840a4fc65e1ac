"""`corral routes` against a real frontend: local first, the hosted one when the local one is away or busy."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.frontend import Frontend
from harness.openai_upstream import OpenAiUpstream
from harness.programs import Admin, clean_environment, run_cli

Serve = Callable[..., OpenAiUpstream]
BODY = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[OpenAiUpstream] = []

    def start(**options: Any) -> OpenAiUpstream:
        started.append(OpenAiUpstream(**options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def environment(frontend: Frontend) -> dict[str, str]:
    return clean_environment(CORRAL_URL=frontend.url, CORRAL_API_KEY=frontend.admin.key)


def test_a_route_lives_from_set_to_delete(frontend: Frontend, environment: dict[str, str], serve: Serve) -> None:
    admin = frontend.admin

    def corral(*words: str) -> str:
        done = run_cli(*words, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "No routes." in corral("routes", "list")
    near, far = serve(models=("near",)), serve(models=("far",))
    corral("models", "attach", "near", "--url", near.url)
    corral("models", "attach", "far", "--url", far.url)
    said = corral("routes", "set", "chat", "--to", "near=2", "--fallback", "far", "--sticky")
    assert said == "chat: leads to near; then far\n"
    listed = corral("routes", "list")
    assert "near*2 (1 ready)" in listed
    assert "far (1 ready)" in listed
    answer = admin.call("POST", "/v1/chat/completions", body=BODY)
    assert (answer.status, answer.headers["x-corral-model"]) == (200, "near")
    assert "x-corral-fallback" not in answer.headers

    corral("models", "detach", "near")
    answer = admin.call("POST", "/v1/chat/completions", body=BODY)
    assert (answer.status, answer.headers["x-corral-model"]) == (200, "far")
    assert answer.headers["x-corral-fallback"] == "away"
    why = corral("why", "request", answer.headers["x-request-id"])
    assert "route chat: it led to far as a fallback for near (away)" in why
    metrics = admin.call("GET", "/metrics").body.decode()
    assert 'corral_route_requests_total{route="chat",model="far",fallback="away"} 1' in metrics

    refused = run_cli("models", "delete", "far", "--yes", environment=environment)
    assert "the route chat leads to far" in refused.stderr
    assert "route.added" in admin.call("GET", "/api/audit").body.decode()
    shown = json.loads(corral("routes", "list", "--json"))
    assert [[one["model"] for one in tier] for tier in shown[0]["tiers"]] == [["near"], ["far"]]
    for wrong in (["--to", "nobody"], ["--to", "near=x"], ["--to", "near", "--fallback", "near"], ["--to", ","]):
        assert run_cli("routes", "set", "other", *wrong, environment=environment).returncode == 2
    assert run_cli("routes", "delete", "chat", environment=environment).returncode == 2
    assert corral("routes", "delete", "chat", "--yes") == "chat: deleted\n"
    assert admin.call("POST", "/v1/chat/completions", body=BODY).status == 404
    user = admin.call("POST", "/api/keys", body={"name": "user"}).json()["key"]
    assert run_cli("routes", "list", environment={**environment, "CORRAL_API_KEY": user}).returncode == 1


def test_a_key_for_a_route_uses_its_models_through_the_route_only(
    frontend: Frontend, environment: dict[str, str], serve: Serve
) -> None:
    admin = frontend.admin

    def corral(*words: str) -> str:
        done = run_cli(*words, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def model_of(key: str, model: str) -> str:
        """The model that answered; empty if the key may not use this name."""
        user = Admin(frontend.url, key)
        answer = user.call("POST", "/v1/chat/completions", body={**BODY, "model": model})
        assert answer.status in (200, 404), answer.body
        return answer.headers.get("x-corral-model", "itself") if answer.status == 200 else ""

    near, far = serve(models=("near",)), serve(models=("far",))
    corral("models", "attach", "near", "--url", near.url)
    corral("models", "attach", "far", "--url", far.url)
    config = "name: near\nbackend: attached\naliases: [gpt]\n"
    assert admin.call("PUT", "/api/models/near", body={"config": config}).status == 200
    for_model = corral("keys", "create", "--name", "model", "--models", "gpt")
    assert model_of(for_model, "gpt") == "itself"
    corral("routes", "set", "chat", "--to", "near", "--fallback", "far")
    corral("routes", "set", "gpt", "--to", "near", "--fallback", "far")

    for_route = corral("keys", "create", "--name", "route", "--models", "chat")
    assert [model_of(for_route, name) for name in ("chat", "gpt", "near", "far")] == ["near", "", "", ""]
    listed = Admin(frontend.url, for_route).call("GET", "/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["chat"]
    for_alias = corral("keys", "create", "--name", "alias", "--models", "gpt")
    assert [model_of(for_alias, name) for name in ("chat", "gpt", "near", "far")] == ["", "near", "", ""]
    assert [model_of(for_model, name) for name in ("chat", "gpt", "near")] == ["", "itself", "itself"], (
        "a route that takes an alias takes nothing from the model's keys, and gives them no other model"
    )
    corral("keys", "models", "route", "gpt,far")
    edited = json.loads(corral("keys", "list", "--json"))
    assert {one["name"]: one["models"] for one in edited}["route"] == ["gpt", "far"]
