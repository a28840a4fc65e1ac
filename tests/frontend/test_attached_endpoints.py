"""`corral models attach` and `detach` against a real frontend and servers that it did not start."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from harness.frontend import Frontend
from harness.ollama_upstream import OllamaUpstream
from harness.openai_upstream import OpenAiUpstream
from harness.ports import free_port
from harness.programs import call, clean_environment, run_cli
from harness.waiting import wait_until

SECRET = "sk-of-the-server-93481"
BODY = {"model": "hosted", "messages": [{"role": "user", "content": "hi"}]}
Serve = Callable[..., OpenAiUpstream]


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
def environment(frontend: Frontend) -> Iterator[dict[str, str]]:
    yield clean_environment(CORRAL_URL=frontend.url, CORRAL_API_KEY=frontend.admin.key)
    for model in frontend.admin.call("GET", "/api/models").json():
        frontend.admin.call("DELETE", f"/api/models/{model['name']}")


def attach(environment: dict[str, str], model: str, url: str, *more: str) -> str:
    done = run_cli("models", "attach", model, "--url", url, *more, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def ask(frontend: Frontend, **changes: Any) -> Any:
    return frontend.admin.call("POST", "/v1/chat/completions", body={**BODY, **changes})


def test_a_server_serves_a_model_from_attach_to_detach(
    frontend: Frontend, environment: dict[str, str], serve: Serve, tmp_path: Path
) -> None:
    server = serve(models=("their-name",), token=SECRET)
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    said = attach(
        environment, "hosted", f"{server.url}/v1", "--upstream-model", "their-name", "--api-key-file", str(key),
        "--limit", "5", "--weight", "2",
    )  # fmt: skip
    assert said == f"hosted: attached {server.url}/v1 (healthy)\n"
    answer = ask(frontend)
    assert (answer.status, answer.json()["model"]) == (200, "hosted")
    assert server.requests[-1][1]["model"] == "their-name"
    assert "hosted" in [one["id"] for one in frontend.admin.call("GET", "/v1/models").json()["data"]]
    shown_everywhere_but_its_key(frontend, environment, server, answer.headers["x-request-id"])
    assert run_cli("models", "detach", "hosted", environment=environment).stdout.startswith(
        f"hosted: detached {server.url}/v1\nNo endpoint serves it now."
    )
    refused = ask(frontend)
    assert (refused.status, "no endpoint is attached" in refused.message) == (503, True)
    wait_until(lambda: frontend.admin.call("GET", "/api/models/hosted/endpoints").json() == [], what="it is forgotten")


def shown_everywhere_but_its_key(
    frontend: Frontend, environment: dict[str, str], server: OpenAiUpstream, request_id: str
) -> None:
    admin = frontend.admin
    (one,) = admin.call("GET", "/api/models/hosted/endpoints").json()
    assert (one["has_key"], one["limit"], one["weight"], one["health"]) == (True, 5, 2, "healthy")
    (replica,) = admin.call("GET", "/api/replicas").json()
    assert (replica["corral_state"], replica["node_id"], replica["capacity"]) == ("ready", server.address, 5)
    listed = run_cli("models", "list", environment=environment).stdout
    assert "ready" in listed
    assert server.url in run_cli("models", "endpoints", environment=environment).stdout
    why = run_cli("why", "model", "hosted", environment=environment).stdout
    assert f"{server.address}, slot 0: ready" in why
    assert f"sent to {server.address}" in run_cli("why", "request", request_id, environment=environment).stdout
    metrics = admin.call("GET", "/metrics").body.decode()
    assert f'corral_attached_endpoint_healthy{{model="hosted",node="{server.address}"}} 1' in metrics
    assert f'corral_requests_total{{model="hosted",node="{server.address}",status="200"}} 1' in metrics
    audit = admin.call("GET", "/api/audit").body.decode()
    assert "endpoint.attached" in audit
    listings = ["/api/models", "/api/models/hosted", "/api/endpoints", "/api/replicas", "/api/why/models/hosted"]
    told = [admin.call("GET", path).body.decode() for path in (*listings, "/api/replicas/summary")]
    for text in (*told, listed, why, metrics, audit, frontend.program.output()):
        assert SECRET not in text


def test_a_setting_is_changed_by_attaching_again_and_the_key_is_kept(
    frontend: Frontend, environment: dict[str, str], serve: Serve, tmp_path: Path
) -> None:
    server = serve(models=("hosted",), token=SECRET)
    key = tmp_path / "key"
    key.write_text(SECRET)
    attach(environment, "hosted", server.url, "--api-key-file", str(key))
    assert attach(environment, "hosted", server.url, "--limit", "3").startswith("hosted: changed")
    (one,) = frontend.admin.call("GET", "/api/models/hosted/endpoints").json()
    assert (one["limit"], one["has_key"], one["health"]) == (3, True, "healthy")
    assert ask(frontend).status == 200


def test_an_attached_server_that_breaks_off_is_continued_at_another_one(
    frontend: Frontend, environment: dict[str, str], serve: Serve
) -> None:
    servers = [serve(models=("hosted",)) for _ in range(2)]
    more = ("--continuation", "continue-final-message", "--endpoints", "/v1/responses,/v1/messages")
    for server in servers:
        attach(environment, "hosted", server.url, *more)
    attach(environment, "hosted", servers[0].url, "--endpoints", "")
    listed = frontend.admin.call("GET", "/api/models/hosted/endpoints").json()
    assert sorted((one["endpoints"], one["continuation"]) for one in listed) == [
        ([], "continue-final-message"), (["/v1/messages", "/v1/responses"], "continue-final-message"),
    ]  # fmt: skip
    client = openai.OpenAI(base_url=f"{frontend.url}/v1", api_key=frontend.admin.key, max_retries=0)
    with (
        client,
        client.chat.completions.with_streaming_response.create(
            model="hosted", messages=[{"role": "user", "content": "break"}], stream=True
        ) as answer,
    ):
        request_id = answer.headers["x-request-id"]
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == "you said break"
    rest = [
        body for server in servers for _, body in server.requests if body.get("stream") and len(body["messages"]) > 1
    ]
    assert [(body["messages"][-1], body["continue_final_message"]) for body in rest] == [
        ({"role": "assistant", "content": "you said"}, True)
    ]
    why = run_cli("why", "request", request_id, environment=environment).stdout
    assert "its answer broke off and was continued at another replica" in why


def test_a_cluster_does_not_attach_itself(frontend: Frontend, environment: dict[str, str], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(frontend.admin.key)
    for more in ([], ["--api-key-file", str(key)]):
        own = ("models", "attach", "mirror", "--url", f"{frontend.url}/v1", *more)
        refused = run_cli(*own, environment=environment)
        assert refused.returncode == 2, more
        assert "is an address of this cluster itself" in refused.stderr
    assert frontend.admin.call("GET", "/api/models").json() == []


def test_a_server_that_is_away_gets_requests_when_it_answers_and_none_after_it_stopped(
    frontend: Frontend, environment: dict[str, str]
) -> None:
    port = free_port()
    said = attach(environment, "hosted", f"http://127.0.0.1:{port}/v1")
    assert "unhealthy" in said
    assert "It gets no requests yet" in said
    refused = ask(frontend)
    assert (refused.status, refused.json()["error"]["code"]) == (503, "model_load_failed")
    assert str(port) not in refused.message
    server = OpenAiUpstream(models=("hosted",), at=("127.0.0.1", port))
    try:
        wait_until(lambda: ask(frontend).status == 200, what="it serves")
    finally:
        server.stop()

    def health() -> str:
        (one,) = frontend.admin.call("GET", "/api/models/hosted/endpoints").json()
        return str(one["health"])

    wait_until(lambda: health() == "unhealthy", what="it is unhealthy", within_s=60)
    assert "endpoint.health_changed" in frontend.program.output()


def test_settings_of_a_model_for_which_nothing_is_started_are_reported(
    frontend: Frontend, environment: dict[str, str], serve: Serve, tmp_path: Path
) -> None:
    config = tmp_path / "hosted.yaml"
    config.write_text(
        "name: hosted\nbackend: attached\ndescription: d\ncontext_size: 8192\nthreads: 4\noptions: [gpu:1]\n"
        "limits: {max_concurrent: 3, retry_after_seconds: 5}\ngolden_prompts: [{prompt: hi, contains: hi}]\n"
    )
    added = run_cli("models", "install", "--file", str(config), environment=environment)
    assert added.returncode == 0, added.stderr
    [warning] = frontend.admin.call("GET", "/api/models/hosted").json()["warnings"]
    assert "so these fields have no effect: golden_prompts, limits.max_concurrent, options, threads." in warning
    assert warning in added.stderr
    attach(environment, "plain", serve(models=("plain",)).url)
    assert frontend.admin.call("GET", "/api/models/plain").json()["warnings"] == []


def test_wrong_names_and_settings_are_reported(
    frontend: Frontend, environment: dict[str, str], serve: Serve, tmp_path: Path
) -> None:
    server = serve(models=("one", "two"), token=SECRET)
    said = attach(environment, "hosted", server.url)
    assert "it rejected the API key" in said
    key = tmp_path / "key"
    key.write_text(SECRET)
    said = attach(environment, "hosted", server.url, "--api-key-file", str(key))
    assert "does not list 'hosted'; it lists one, two" in said
    for wrong in (
        ["--url", "http://u:p@h/v1"],
        ["--url", "http://h/v1/chat/completions"],
        ["--url", "http://h/v1", "--pin", "ab" * 32],
        ["--url", "https://h/v1", "--pin", "abc"],
        ["--url", "https://h/v1", "--ca-file", str(key)],
        ["--url", "http://h/v1", "--api-key-file", str(tmp_path / "none")],
        ["--url", "http://h/v1", "--endpoints", "/v1/chat/completions"],
        ["--url", "http://h/v1", "--endpoints", "/v1/responses", "--protocol", "anthropic"],
        ["--url", "http://h/v1", "--continuation", "llama.cpp"],
    ):
        refused = run_cli("models", "attach", "other", *wrong, environment=environment)
        assert refused.returncode == 2, (wrong, refused.stdout, refused.stderr)
        assert SECRET not in refused.stderr
    too_long = frontend.admin.call(
        "POST", "/api/models/hosted/endpoints", body={"url": server.url, "api_key": SECRET * 1000}
    )
    assert (too_long.status, SECRET in too_long.body.decode()) == (400, False)
    scaled = run_cli("models", "scale", "hosted", "2", environment=environment)
    assert "only attached endpoints serve it" in scaled.stderr
    user = frontend.admin.call("POST", "/api/keys", body={"name": "user"}).json()["key"]
    assert call("GET", f"{frontend.url}/api/endpoints", key=user).status == 403


@pytest.mark.parametrize("stream", [False, True])
def test_of_two_attached_servers_one_fails_a_fifth_of_its_requests_and_no_client_sees_an_error(
    frontend: Frontend, environment: dict[str, str], serve: Serve, stream: bool
) -> None:
    steady, shaky = serve(models=("hosted",)), serve(models=("hosted",), failing=0.2)
    for server in (steady, shaky):
        attach(environment, "hosted", server.url)

    async def ask_many() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{frontend.url}/v1", api_key=frontend.admin.key, max_retries=0
        ) as client:

            async def one(number: int) -> str:
                messages: list[Any] = [{"role": "user", "content": f"number {number}"}]
                if not stream:
                    answer = await client.chat.completions.create(model="hosted", messages=messages)
                    return answer.choices[0].message.content or ""
                events = await client.chat.completions.create(model="hosted", messages=messages, stream=True)
                return "".join([event.choices[0].delta.content or "" async for event in events if event.choices])

            found: list[str] = []
            # An endpoint that fails rests, so the number of requests that it takes for three failures varies.
            deadline = time.monotonic() + 60
            while len(found) < 200 or (shaky.failed < 3 and time.monotonic() < deadline):
                found += await asyncio.gather(*(one(len(found) + number) for number in range(8)))
            return found

    answers = asyncio.run(ask_many())
    assert answers == [f"you said number {number}" for number in range(len(answers))]
    assert shaky.failed >= 3
    assert len(steady.requests) + len(shaky.requests) == len(answers) + shaky.failed, "each failure was asked once more"


def test_a_running_stream_ends_in_its_own_time_when_its_server_is_detached(
    frontend: Frontend, environment: dict[str, str], serve: Serve
) -> None:
    server = serve(models=("hosted",))
    attach(environment, "hosted", server.url)

    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{frontend.url}/v1", api_key=frontend.admin.key) as client:
            events = await client.chat.completions.create(
                model="hosted", messages=[{"role": "user", "content": "slow"}], stream=True
            )
            text = ""
            async for event in events:
                if not text and event.choices[0].delta.content:
                    (one,) = frontend.admin.call("GET", "/api/endpoints").json()
                    frontend.admin.call("DELETE", f"/api/models/hosted/endpoints/{one['id']}")
                    (one,) = frontend.admin.call("GET", "/api/endpoints").json()
                    assert (one["state"], one["in_flight"]) == ("draining", 1)
                text += event.choices[0].delta.content or ""
            return text

    assert asyncio.run(run()) == "you said slow"
    assert ask(frontend).status == 503


def test_the_json_form_of_the_command_is_that_of_the_api(
    frontend: Frontend, environment: dict[str, str], serve: Serve
) -> None:
    server = serve(models=("hosted",))
    given = run_cli("models", "attach", "hosted", "--url", server.url, "--json", environment=environment)
    (listed,) = json.loads(run_cli("models", "endpoints", "hosted", "--json", environment=environment).stdout)
    assert {**json.loads(given.stdout), "is_new": None, "warnings": None} == {
        **listed, "is_new": None, "warnings": None,
    }  # fmt: skip


# Ollama


@pytest.fixture
def ollama() -> Iterator[OllamaUpstream]:
    server = OllamaUpstream("qwen3:8b", "all-minilm:latest")
    yield server
    server.stop()


def attach_ollama(environment: dict[str, str], server: OllamaUpstream, model: str, *more: str) -> str:
    return attach(environment, model, server.url, "--protocol", "ollama", *more)


def test_an_attached_ollama_serves_the_clients_of_all_apis_through_its_openai_api(
    frontend: Frontend, environment: dict[str, str], ollama: OllamaUpstream
) -> None:
    said = attach_ollama(environment, ollama, "hosted", "--upstream-model", "qwen3:8b")
    assert said == f"hosted: attached {ollama.url}/v1 (healthy)\n"
    (one,) = frontend.admin.call("GET", "/api/models/hosted/endpoints").json()
    assert one["protocol"] == "ollama"

    def post(path: str, **body: Any) -> Any:
        answer = frontend.admin.call("POST", path, body={"model": "hosted", "max_tokens": 50, **body})
        assert answer.status == 200, answer.body
        return answer.json()

    messages = BODY["messages"]
    whole = post("/v1/chat/completions", messages=messages)
    assert (whole["model"], whole["choices"][0]["message"]["content"]) == ("hosted", "you said hi")
    assert post("/v1/completions", prompt="one")["choices"][0]["text"] == "one and so on"
    message = post("/v1/messages", messages=messages)
    assert message["content"] == [{"type": "text", "text": "you said hi"}]
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (26, 3)
    assert post("/v1/responses", input="hi")["output"][-1]["content"][0]["text"] == "you said hi"
    native = post("/api/chat", messages=messages, stream=False, options={"num_predict": 2})
    assert (native["message"]["content"], native["done_reason"]) == ("you said ", "length")
    assert post("/api/generate", prompt="hi", stream=False)["response"] == "you said hi"
    thought = post("/api/chat", messages=[{"role": "user", "content": "think"}], stream=False)
    assert (thought["message"]["thinking"], thought["message"]["content"]) == ("hmm", "you said think")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    called = post("/api/chat", messages=[{"role": "user", "content": "tool"}], tools=tools, stream=False)
    assert called["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Paris"}}
    posted = {path for path, request in ollama.requests if request is not None}
    assert posted == {"/v1/chat/completions", "/v1/completions"}, "its native API is not used"
    assert {request["model"] for _, request in ollama.requests if request is not None} == {"qwen3:8b"}
    assert {path for path, request in ollama.requests if request is None} == {"/v1/models"}


def test_the_streams_of_an_attached_ollama_end_with_its_usage(
    frontend: Frontend, environment: dict[str, str], ollama: OllamaUpstream
) -> None:
    attach_ollama(environment, ollama, "hosted", "--upstream-model", "qwen3:8b")
    with openai.OpenAI(base_url=f"{frontend.url}/v1", api_key=frontend.admin.key, max_retries=0) as client:
        usage: openai.types.CompletionUsage | None = None
        for question, text in (("hi", "you said hi"), ("think", "you said think")):
            chunks = list(
                client.chat.completions.create(
                    model="hosted",
                    messages=[{"role": "user", "content": question}],
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
            said = [choice for chunk in chunks for choice in chunk.choices]
            assert "".join(choice.delta.content or "" for choice in said) == text
            assert [choice.finish_reason for choice in said if choice.finish_reason] == ["stop"]
            usage = chunks[-1].usage
            assert usage is not None
            assert usage.prompt_tokens == 26
            assert {chunk.model for chunk in chunks} == {"hosted"}
        parts = list(
            client.completions.create(model="hosted", prompt="one", stream=True, stream_options={"include_usage": True})
        )
        assert "".join(choice.text for part in parts for choice in part.choices) == "one and so on"
        usage = parts[-1].usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (4, 2)
    answer = frontend.admin.call("POST", "/api/chat", body={**BODY, "stream": True})
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == "you said hi"
    assert (lines[-1]["done"], lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]) == (True, 26, 3)
    node = ollama.url.removeprefix("http://")
    metrics = frontend.admin.call("GET", "/metrics").body.decode()
    assert f'corral_tokens_total{{model="hosted",node="{node}",direction="in"}} {3 * 26 + 4}' in metrics


def test_the_errors_of_an_attached_ollama_reach_each_client_in_its_own_form(
    frontend: Frontend, environment: dict[str, str], ollama: OllamaUpstream
) -> None:
    said = attach_ollama(environment, ollama, "hosted", "--upstream-model", "qwen4")
    assert "does not list 'qwen4'; it lists all-minilm:latest, qwen3:8b" in said
    for path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
        refused = frontend.admin.call("POST", path, body={**BODY, "max_tokens": 9, "stream": False})
        error = refused.json()["error"]
        message = error if path == "/api/chat" else error["message"]
        assert (refused.status, "try pulling it first" in message) == (404, True), refused.body
    refused = frontend.admin.call("POST", "/v1/rerank", body={"model": "hosted", "query": "a", "documents": ["b"]})
    assert (refused.status, refused.json()["error"]["code"]) == (404, "endpoint_not_supported")
    attach_ollama(environment, ollama, "busy", "--upstream-model", "qwen3:8b")
    busy = {"model": "busy", "messages": [{"role": "user", "content": "busy"}]}
    refused = frontend.admin.call("POST", "/v1/chat/completions", body=busy)
    assert (refused.status, "server busy" in refused.message) == (503, True)


def test_a_model_of_an_attached_ollama_need_not_be_named_with_the_tag_latest(
    frontend: Frontend, environment: dict[str, str], ollama: OllamaUpstream
) -> None:
    assert "does not list" not in attach_ollama(environment, ollama, "all-minilm")
    answer = frontend.admin.call("POST", "/v1/embeddings", body={"model": "all-minilm", "input": ["a", "b"]})
    assert [one["embedding"] for one in answer.json()["data"]] == [[0.5, 1.0]] * 2
    native = frontend.admin.call("POST", "/api/embed", body={"model": "all-minilm", "input": "a"})
    assert native.json()["embeddings"] == [[0.5, 1.0]]
    empty = OllamaUpstream()
    try:
        assert attach_ollama(environment, empty, "none").endswith("(healthy)\n"), "its list of models is null"
    finally:
        empty.stop()
