"""The official clients against a whole fleet, through every kind of backend."""

import json
import uuid
from collections.abc import Callable

import pytest

from harness.cluster import ADMIN_KEY, Cluster
from harness.machine_speed import promised
from harness.programs import call, clean_environment, run_cli
from harness.waiting import wait_until

Client = Callable[..., list[str]]
PYTHON_AND_NODE = ["", "node_"]
EVERYTHING = ("chat", "echo", "tools", "embeddings", "errors")
CHECKS = {
    "models_are_listed",
    "chat_is_answered",
    "chat_is_streamed",
    "a_stream_can_be_left",
    "a_time_out_is_the_clients_own_and_harms_nobody",
    "tools_can_be_offered",
    "text_is_completed",
    "an_unknown_model_is_not_found_and_near_names_are_told",
    "a_wrong_key_is_refused",
    "wrong_input_is_refused",
}
LANGCHAIN_CHECKS = {
    "messages_are_answered",
    "messages_are_streamed",
    "a_chain_is_answered_in_batches",
    "tools_are_bound_and_called",
    "texts_are_embedded",
    "an_unknown_model_is_an_error",
}
MORE_CHECKS = CHECKS | {
    "every_character_arrives",
    "tools_are_called",
    "texts_are_embedded",
    "a_failing_backend_is_an_error",
}


@pytest.mark.registry
@pytest.mark.parametrize("backend", ["echo-openai", "echo-grpc"])
@pytest.mark.parametrize("language", ["python", "node"])
def test_the_official_client_works_unchanged(
    fleet: Cluster, backend: str, language: str, request: pytest.FixtureRequest
) -> None:
    client = request.getfixturevalue(f"{language}_client")
    url = fleet.admin().url
    key = make_key(fleet)
    assert set(client(url, key, f"{backend}-model", *EVERYTHING)) == MORE_CHECKS
    if backend == "echo-grpc":
        assert client(url, key, f"{backend}-model", "media") == ["sound_and_pictures_pass"]
    assert_used(fleet, f"{backend}-model")


@pytest.mark.registry
@pytest.mark.parametrize("backend", ["echo-openai", "echo-grpc"])
def test_langchain_works_unchanged(fleet: Cluster, backend: str, langchain_client: Client) -> None:
    assert set(langchain_client(fleet.admin().url, make_key(fleet), f"{backend}-model")) == LANGCHAIN_CHECKS


RESPONSE_CHECKS = {"a_response_is_given", "a_response_is_streamed"}
MESSAGE_CHECKS = {
    "models_are_listed",
    "a_message_is_answered",
    "a_message_is_streamed",
    "tokens_are_counted",
    "wrong_input_and_keys_are_refused",
}


@pytest.mark.registry
@pytest.mark.parametrize("backend", ["echo-openai", "echo-grpc"])
@pytest.mark.parametrize("language", PYTHON_AND_NODE)
def test_anthropics_client_works_unchanged(
    fleet: Cluster, backend: str, language: str, request: pytest.FixtureRequest
) -> None:
    """By translation: neither backend speaks its protocol."""
    client = request.getfixturevalue(f"{language}anthropic_client")
    passed = client(fleet.admin().url, make_key(fleet), f"{backend}-model", "messages", "tools", *seeing(backend))
    assert set(passed) == MESSAGE_CHECKS | {"tools_are_called"} | seen(backend)


OLLAMA_CHECKS = {
    "models_are_listed_and_shown",
    "chat_is_answered",
    "chat_is_streamed",
    "text_is_generated",
    "an_unknown_model_is_not_found",
}


@pytest.mark.registry
@pytest.mark.parametrize("backend", ["echo-openai", "echo-grpc"])
@pytest.mark.parametrize("language", PYTHON_AND_NODE)
def test_ollamas_client_works_unchanged(
    fleet: Cluster, backend: str, language: str, request: pytest.FixtureRequest
) -> None:
    client, features = request.getfixturevalue(f"{language}ollama_client"), ("chat", "tools", "embeddings")
    passed = client(fleet.admin().url, make_key(fleet), f"{backend}-model", *features, *seeing(backend))
    assert set(passed) == OLLAMA_CHECKS | {"tools_are_called", "texts_are_embedded"} | seen(backend)


@pytest.mark.registry
@pytest.mark.parametrize("language", PYTHON_AND_NODE)
def test_ollamas_client_pulls_and_deletes_models(fleet: Cluster, language: str, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(f"{language}ollama_client")
    assert client(fleet.admin().url, ADMIN_KEY, "smollm2", "pull") == ["models_are_pulled_and_deleted"]
    refused = call("POST", f"{fleet.admin().url}/api/pull", key=make_key(fleet), body={"model": "smollm2"})
    assert (refused.status, "needs an admin key" in refused.json()["error"]) == (403, True)


@pytest.mark.registry
@pytest.mark.parametrize("backend", ["echo-openai", "echo-grpc"])
@pytest.mark.parametrize("language", ["python", "node"])
def test_responses_are_translated(fleet: Cluster, backend: str, language: str, request: pytest.FixtureRequest) -> None:
    client, features = request.getfixturevalue(f"{language}_client"), ("responses", "response_tools")
    passed = client(fleet.admin().url, make_key(fleet), f"{backend}-model", *features, *seeing(backend))
    assert set(passed) == RESPONSE_CHECKS | {"a_response_calls_tools"} | seen(backend)


@pytest.mark.registry
def test_thoughts_cut_calls_and_pictures_of_tools_reach_the_official_clients(
    fleet: Cluster, python_client: Client, anthropic_client: Client, ollama_client: Client
) -> None:
    """With the backend that can be asked for them."""
    of_fleet = (fleet.admin().url, make_key(fleet), "echo-openai-model")
    assert anthropic_client(*of_fleet, "thinking", "cut", "tool_images") == [
        "thoughts_are_told", "a_tool_call_may_be_cut", "tools_give_images",
    ]  # fmt: skip
    assert ollama_client(*of_fleet, "thinking", "cut", "stop") == [
        "thoughts_are_told", "a_tool_call_may_be_cut", "a_model_is_stopped",
    ]  # fmt: skip
    assert python_client(*of_fleet, "response_cut", "tool_images") == [
        "a_responses_tool_call_may_be_cut", "tools_give_images",
    ]  # fmt: skip


def seeing(backend: str) -> tuple[str, ...]:
    """Of the two backends only this one repeats images, so that a test sees them arrive."""
    return ("vision",) if backend == "echo-openai" else ()


def seen(backend: str) -> set[str]:
    return {"images_are_sent"} if seeing(backend) else set()


def make_key(fleet: Cluster) -> str:
    made = fleet.admin().call("POST", "/api/keys", body={"name": f"client-{uuid.uuid4()}"})
    assert made.status == 201, made.body
    key: str = made.json()["key"]
    return key


def assert_used(fleet: Cluster, model: str) -> None:
    """What was asked is counted for key, model and node; what was said is nowhere."""

    def look() -> bool | None:
        rows = fleet.admin().call("GET", "/api/usage").json()
        found = [row for row in rows if row["model"] == model and row["key_name"].startswith("client-")]
        return any(row["requests"] >= 3 and row["tokens_out"] > 0 and row["node_name"] == "w1" for row in found) or None

    wait_until(look, what=f"{model} is counted", within_s=15)
    for file in fleet.directory.glob("corral.db*"):
        assert b"colour of a horse" not in file.read_bytes()
    assert "colour of a horse" not in (fleet.directory / "a.log").read_text()


@pytest.mark.registry
def test_a_key_is_held_to_its_models_and_ends_within_five_seconds(fleet: Cluster) -> None:
    admin = fleet.admin()
    made = admin.call("POST", "/api/keys", body={"name": "held", "models": ["echo-openai-model"]}).json()

    def ask(model: str) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        return call("POST", f"{admin.url}/v1/chat/completions", key=made["key"], body=body).status

    assert ask("echo-openai-model") == 200
    assert ask("echo-grpc-model") in (403, 404)
    listed = call("GET", f"{admin.url}/v1/models", key=made["key"]).json()["data"]
    assert [item["id"] for item in listed] == ["echo-openai-model"]
    assert admin.call("DELETE", f"/api/keys/{made['id']}").status == 200
    with promised("the key's end", within_s=5):
        wait_until(lambda: ask("echo-openai-model") == 401 or None, what="the key is dead")


@pytest.mark.registry
def test_the_official_clients_talk_to_llama_cpp(fleet: Cluster, request: pytest.FixtureRequest) -> None:
    admin = fleet.admin()
    assert admin.call("POST", "/api/models/install", body={"name": "smollm2"}).status == 201
    config = admin.call("GET", "/api/models/smollm2").json()["config"]
    vectors = config.replace("name: smollm2", "name: smol-vectors\nembeddings: true", 1)
    assert admin.call("POST", "/api/models", body={"config": vectors}).status == 201
    for model in ("smollm2", "smol-vectors"):
        loaded = admin.call("POST", f"/api/models/{model}/load", body={"wait_s": 120}, within_s=150)
        assert loaded.status == 200, loaded.body
    key = make_key(fleet)
    for language in ("python", "node"):
        client = request.getfixturevalue(f"{language}_client")
        assert set(client(admin.url, key, "smollm2", "chat", "structured")) == CHECKS | {"a_schema_is_kept"}
        assert client(admin.url, key, "smol-vectors", "vectors") == ["texts_become_vectors"]
        assert set(client(admin.url, key, "smollm2", "responses")) == RESPONSE_CHECKS
    for prefix in PYTHON_AND_NODE:
        # llama.cpp speaks this protocol itself, so these pass through.
        client = request.getfixturevalue(f"{prefix}anthropic_client")
        assert set(client(admin.url, key, "smollm2", "messages")) == MESSAGE_CHECKS
        client = request.getfixturevalue(f"{prefix}ollama_client")
        assert set(client(admin.url, key, "smollm2", "chat", "structured")) == OLLAMA_CHECKS | {"a_schema_is_kept"}
    assert_used(fleet, "smollm2")


@pytest.mark.registry
def test_corral_chat_talks_to_the_fleet(fleet: Cluster) -> None:
    environment = clean_environment(CORRAL_URL=fleet.admin().url, CORRAL_API_KEY=make_key(fleet))
    said = run_cli("chat", "echo-grpc-model", "hello there", "-v", environment=environment)
    assert said.stdout == "tiny.gguf 1 says hello there\n", said.stderr
    assert "11 tokens in" in said.stderr
    assert "node unknown" in said.stderr
    told = run_cli("chat", "echo-grpc-model", "hi", "-v", environment={**environment, "CORRAL_API_KEY": ADMIN_KEY})
    assert "from w1" in told.stderr
    unknown = run_cli("chat", "echo-grpc-modle", "hi", environment=environment)
    assert (unknown.returncode, "echo-grpc-model" in unknown.stderr) == (1, True)


@pytest.mark.registry
def test_an_edit_takes_old_replicas_out_of_service_at_once(fleet: Cluster) -> None:
    admin = fleet.admin()

    def ask() -> str:
        body = {"model": "echo-grpc-model", "messages": [{"role": "user", "content": "options?"}]}
        answer = admin.call("POST", "/v1/chat/completions", body=body, within_s=90)
        assert answer.status == 200, answer.body
        content: str = answer.json()["choices"][0]["message"]["content"]
        return content

    assert "TopK" in ask()
    before = admin.call("GET", "/api/models/echo-grpc-model").json()
    edited = before["config"] + "stopwords: [after the edit]\n"
    assert admin.call("PUT", "/api/models/echo-grpc-model", body={"config": edited}).status == 200
    loaded = json.loads(ask())
    assert loaded["request"]["StopPrompts"] == ["after the edit"]
    revisions = {
        replica["config_revision"]
        for replica in admin.call("GET", "/api/replicas").json()
        if replica["model_name"] == "echo-grpc-model" and replica["corral_state"] == "ready"
    }
    assert revisions == {admin.call("GET", "/api/models/echo-grpc-model").json()["revision"]}


@pytest.mark.registry
def test_a_model_is_loaded_scaled_and_unloaded_from_the_command_line(fleet: Cluster) -> None:
    environment = clean_environment(CORRAL_URL=fleet.admin().url, CORRAL_API_KEY=ADMIN_KEY)

    def models(*arguments: str) -> tuple[int, str]:
        done = run_cli("models", *arguments, environment=environment)
        return done.returncode, done.stdout + done.stderr

    assert models("load", "echo-openai-model") == (0, "echo-openai-model: loaded\n")
    assert models("scale", "echo-openai-model", "1") == (0, "echo-openai-model: 1 replica, always\n")
    code, said = models("unload", "echo-openai-model")
    assert (code, "corral models scale echo-openai-model --min 0" in said) == (1, True)
    assert models("scale", "echo-openai-model", "--min", "0")[0] == 0
    assert models("unload", "echo-openai-model") == (0, "echo-openai-model: unloaded\n")
    assert models("scale", "echo-openai-model")[0] == 2
    code, said = models("scale", "echo-openai-modle", "1")
    assert (code, "echo-openai-model" in said) == (1, True)
