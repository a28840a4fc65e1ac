"""Servers that Corral does not start: their paths, names, keys, certificates and failures."""

import asyncio
import hashlib
import json
import random
import shutil
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from corral.core.replicas.attached import ServerTrust, UpstreamProtocol
from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from harness.gateway import KEY, OTHER_KEY, Answering, Replica, RunningGateway, completion
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def stream_words(answering: Answering) -> None:
    await answering.start_stream()
    for word in ("one", " two"):
        await answering.event({"id": "c", "model": "their-name", "choices": [{"index": 0, "delta": {"content": word}}]})
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    await answering.event({"id": "c", "model": "their-name", "choices": [end], "usage": usage})
    await answering.event("[DONE]")
    await answering.end_stream()


async def test_a_request_reaches_the_servers_own_path_with_its_key_and_without_the_clients(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    server = await replica("one", token="sk-theirs")
    gateway.serve_routes("m", server.attached_route(path="/openai/v1"))
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["who"]) == (200, "one")
    (seen,) = server.seen
    assert seen.path == "/openai/v1/chat/completions"
    assert seen.headers["authorization"] == "Bearer sk-theirs"
    assert KEY not in str(seen.headers)
    assert [name for name in seen.headers if name.startswith("x-corral")] == ["x-corral-hops"]
    assert seen.headers["host"] == f"127.0.0.1:{server.port}"
    assert 'corral_requests_total{model="m",node="127.0.0.1:' in gateway.metrics()


async def test_the_servers_name_of_the_model_is_sent_and_the_clients_name_comes_back(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    server = await replica("one")

    async def answer_as(answering: Answering) -> None:
        await answering.json({**completion("one"), "model": "their-name"})

    server.script = answer_as
    gateway.serve_routes("m", server.attached_route(model="their-name"), aliases=("alias",))
    for name in ("m", "alias", "m"):
        answer = await client.post(CHAT, json={**BODY, "model": name, "seed": 7})
        assert answer.json()["model"] == name
        assert answer.json()["usage"]["total_tokens"] == 10
    assert [(seen.json()["model"], seen.json()["seed"]) for seen in server.seen] == [("their-name", 7)] * 3
    server.script = stream_words
    answer = await client.post(CHAT, json={**BODY, "model": "alias", "stream": True})
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    assert {json.loads(event)["model"] for event in events[:-1]} == {"alias"}
    metrics = gateway.metrics()
    assert f'corral_tokens_total{{model="m",node="127.0.0.1:{server.port}",direction="in"}} 25' in metrics
    assert f'corral_tokens_total{{model="m",node="127.0.0.1:{server.port}",direction="out"}} 11' in metrics


async def test_without_another_name_answers_are_relayed_byte_for_byte(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    server = await replica("one")
    server.script = stream_words
    gateway.serve_routes("m", server.attached_route())
    answer = await client.post(CHAT, json={**BODY, "stream": True})
    assert answer.text.count("their-name") == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v1/messages", {**BODY, "max_tokens": 5, "metadata": {"user_id": "u"}}, id="messages"),
        pytest.param("/v1/messages/count_tokens", {**BODY, "metadata": {"user_id": "u"}}, id="tokens"),
        pytest.param("/v1/responses", {"model": "m", "input": "hi", "previous_response_id": "resp_0"}, id="responses"),
    ],
)
async def test_paths_that_a_server_has_itself_are_relayed(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str, body: dict[str, Any]
) -> None:
    server = await replica("one", token="sk-theirs")
    gateway.serve_routes("m", server.attached_route(path="/api/v1", model="theirs", endpoints=frozenset({path})))
    answer = await client.post(path, json=body)
    assert answer.json()["who"] == "one", "byte for byte"
    assert server.seen[0].path == f"/api{path}"
    assert server.seen[0].json() == {**body, "model": "theirs"}
    assert server.seen[0].headers["authorization"] == "Bearer sk-theirs"
    gateway.serve_routes("m", server.attached_route(path="/api/v1", model="theirs"))
    await client.post(path, json=body)
    assert [seen.path for seen in server.seen[1:]] in ([], ["/api/v1/chat/completions"]), "translated, or refused"


async def test_a_form_gets_the_servers_name_too(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    server = await replica("one")
    gateway.serve_routes("m", server.attached_route(model="whisper-9"))
    answer = await client.post("/v1/audio/transcriptions", data={"model": "m"}, files={"file": b"sound"})
    assert answer.status_code == 200
    assert b"whisper-9" in server.seen[0].body
    assert b"sound" in server.seen[0].body


async def test_of_two_endpoints_one_may_fail_at_random_without_any_client_seeing_it(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    """F-52. Each kind of failure that the other server need not share; streamed and whole answers; many at once."""
    chance = random.Random(7)
    steady, shaky = await replica("steady"), await replica("shaky")
    failed: Counter[str] = Counter()

    async def answer(answering: Answering) -> None:
        if answering.seen.json().get("stream"):
            await stream_words(answering)
        else:
            await answering.json(completion("any"))

    async def fail_sometimes(answering: Answering) -> None:
        if chance.random() >= 0.2:
            await answer(answering)
            return
        kind = chance.choice(["429", "500", "502", "503", "529", "403", "401", "302", "reset", "half", "silent-stream"])
        failed[kind] += 1
        if kind.isdigit():
            headers = {"Location": "http://127.0.0.1:1/"} if kind == "302" else {"Retry-After": "0"}
            await answering.json({"error": {"message": "no"}}, status=int(kind), headers=headers)
        elif kind == "half":
            await answering.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"h')
            answering.die()
        elif kind == "silent-stream" and answering.seen.json().get("stream"):
            await answering.start_stream()
            answering.die()
        else:
            answering.die()

    steady.script, shaky.script = answer, fail_sometimes
    gateway.serve_routes("m", steady.attached_route(capacity=4), shaky.attached_route(capacity=4))
    endpoints = list(gateway.gateway.table.endpoints())

    async def ask(number: int) -> None:
        found = await client.post(CHAT, json={**BODY, "stream": number % 2 == 0})
        assert found.status_code == 200, found.text
        assert "[DONE]" in found.text if number % 2 == 0 else found.json()["who"] == "any"
        assert "error" not in found.text

    for _ in range(60):
        for endpoint in endpoints:
            endpoint.avoid_until_s = 0.0  # otherwise the shaky one would get few requests
        await asyncio.gather(*map(ask, range(12)))
    assert sum(failed.values()) > 25, failed
    assert len(failed) > 8, failed
    assert gateway.open_requests() == 0


async def test_a_server_that_does_not_have_the_model_is_passed_over_but_not_avoided(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    without, with_it = await replica("without"), await replica("with")

    async def unknown(answering: Answering) -> None:
        await answering.json({"error": {"message": "The model `m` does not exist.", "code": "x"}}, status=404)

    without.script = unknown
    gateway.serve_routes("m", without.attached_route(), with_it.attached_route())
    for _ in range(8):
        assert (await client.post(CHAT, json=BODY)).json()["who"] == "with"
    assert without.seen
    assert all(endpoint.avoid_until_s == 0.0 for endpoint in gateway.gateway.table.endpoints())
    gateway.serve_routes("m", without.attached_route())
    refused = await client.post(CHAT, json=BODY)
    assert (refused.status_code, "does not exist" in refused.text) == (404, True)


Failing = Callable[[Answering], Coroutine[Any, Any, None]]


def failing(status: int, *, headers: dict[str, str] | None = None, broken: bool = False) -> Failing:
    """Answers requests that say "poison" with an error, all if it is broken."""

    async def answer(answering: Answering) -> None:
        if broken or b"poison" in answering.seen.body:
            await answering.json({"error": {"message": "no"}}, status=status, headers=headers)
        else:
            await answering.json(completion("hosted"))

    return answer


def poison(number: int = 0) -> dict[str, Any]:
    return {**BODY, "messages": [{"role": "user", "content": f"poison {number}"}]}


@pytest.mark.parametrize("status", [403, 408, 425, 429, 500, 502, 503, 529])
@pytest.mark.parametrize("has_route", [False, True], ids=["two-endpoints", "a-route"])
async def test_a_prompt_that_one_server_cannot_answer_does_not_keep_others_from_that_server(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, status: int, has_route: bool
) -> None:
    hosted, steady = await replica("hosted"), await replica("steady")
    headers = {"Retry-After": "60"} if status not in (429, 503) else {}
    hosted.script = failing(status, headers=headers)
    if has_route:
        gateway.serve_routes("gpt", hosted.attached_route())
        gateway.serve("qwen", steady)
        tiers = ((RouteTarget("gpt"),), (RouteTarget("qwen"),))
        gateway.routes.snapshot = replace(gateway.routes.snapshot, public=(PublicRoute(name="m", tiers=tiers),))
        gateway.gateway.table.apply(gateway.routes.snapshot)
    else:
        gateway.serve_routes("m", hosted.attached_route(), steady.attached_route())
    for _ in range(100):
        assert (await client.post(CHAT, json=poison())).json()["who"] == "steady"
        if len(hosted.seen) >= 3:
            break
    assert len(hosted.seen) >= 3, "it was tried"
    for number in range(1, 12):  # however the same key varies it
        assert (await client.post(CHAT, json=poison(number))).json()["who"] == "steady"
    now_s = gateway.gateway.now_s()
    assert all(endpoint.avoid_until_s <= now_s for endpoint in gateway.gateway.table.endpoints())
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    answers = [(await client.post(CHAT, json=BODY, headers=other)).json()["who"] for _ in range(16)]
    assert "hosted" in answers, answers
    if has_route:
        assert set(answers) == {"hosted"}


async def test_a_server_that_fails_all_requests_is_avoided_by_the_key_that_sees_it_and_then_by_all(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    hosted, steady = await replica("hosted"), await replica("steady")
    hosted.script = failing(500, broken=True)
    gateway.serve_routes("m", hosted.attached_route(), steady.attached_route())
    [endpoint] = [one for one in gateway.gateway.table.endpoints() if one.replica.id == "replica-hosted"]
    for number in range(40):
        assert (await client.post(CHAT, json=poison(number))).json()["who"] == "steady"
    tried = len(hosted.seen)
    assert 3 <= tried <= 8, "most of its requests go elsewhere"
    assert endpoint.avoid_until_s <= gateway.gateway.now_s()
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    for number in range(20):
        assert (await client.post(CHAT, json=poison(number), headers=other)).json()["who"] == "steady"
    assert endpoint.avoid_until_s > gateway.gateway.now_s()
    assert tried < len(hosted.seen) <= tried + 4
    endpoint.avoid_until_s = gateway.gateway.now_s()
    hosted.script = failing(500)
    await steady.kill()
    answer = await client.post(CHAT, json=BODY)
    assert (answer.json()["who"], endpoint.avoid_until_s) == ("hosted", 0.0), "one success ends it"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_when_to_retry_is_left_alone_by_all(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, status: int
) -> None:
    hosted, steady = await replica("hosted"), await replica("steady")
    hosted.script = failing(status, headers={"Retry-After": "30"}, broken=True)
    gateway.serve_routes("m", hosted.attached_route(), steady.attached_route())
    [endpoint] = [one for one in gateway.gateway.table.endpoints() if one.replica.id == "replica-hosted"]
    for _ in range(20):
        assert (await client.post(CHAT, json=BODY)).json()["who"] == "steady"
    assert len(hosted.seen) == 1
    assert 25 < endpoint.avoid_until_s - gateway.gateway.now_s() <= 30


async def test_a_request_that_no_server_can_answer_leaves_all_of_them_in_use(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    servers = [await replica(name) for name in ("one", "two")]
    for server in servers:
        server.script = failing(500)
    gateway.serve_routes("m", *(server.attached_route() for server in servers))
    for _ in range(10):
        assert (await client.post(CHAT, json=poison())).status_code == 500
    assert [len(server.seen) for server in servers] == [10, 10]
    now_s = gateway.gateway.now_s()
    assert all(endpoint.avoid_until_s <= now_s for endpoint in gateway.gateway.table.endpoints())


async def test_when_all_fail_the_client_gets_an_error_that_has_no_secrets(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    server = await replica("one", token="sk-right")
    other = await replica("two", token="sk-other")
    route = server.attached_route()
    server.token = "sk-changed-there"

    async def refuse(answering: Answering) -> None:
        await answering.json({"error": {"message": "quota of sk-other is used up"}}, status=401)

    other.script = refuse
    gateway.serve_routes("m", route, other.attached_route())
    answer = await client.post(CHAT, json=BODY)
    assert answer.status_code == 502
    assert "rejected its API key" in answer.json()["error"]["message"]
    assert "sk-" not in answer.text
    # Nor addresses.
    other.script = server.script
    for one in (server, other):
        await one.kill()
    gateway.gateway.limits = replace(gateway.gateway.limits, queue_wait_s=0.2)
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, "127.0.0.1" in answer.text) == (503, False), answer.text


async def test_the_only_endpoint_s_own_error_reaches_the_client_and_a_redirect_does_not(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    server, thief = await replica("one"), await replica("thief")

    async def limit(answering: Answering) -> None:
        await answering.json({"error": {"message": "too many"}}, status=429, headers={"Retry-After": "9"})

    async def redirect(answering: Answering) -> None:
        target = f"http://127.0.0.1:{thief.port}/v1/chat/completions"
        await answering.json({}, status=307, headers={"Location": target})

    server.script = limit
    gateway.serve_routes("m", server.attached_route())
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "9")
    server.script = redirect
    answer = await client.post(CHAT, json=BODY)
    assert (answer.status_code, "location" in answer.headers) == (502, False)
    assert "not followed" in answer.json()["error"]["message"]
    assert thief.connections == 0


async def test_requests_are_shared_by_weight_and_bounded_by_the_limit(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    big, small = await replica("big"), await replica("small")
    gateway.serve_routes("m", big.attached_route(weight=4), small.attached_route())
    for _ in range(200):
        await client.post(CHAT, json=BODY)
    assert 130 <= len(big.seen) <= 190
    held, most = asyncio.Event(), 0

    async def hold(answering: Answering) -> None:
        nonlocal most
        most = max(most, big.open)
        await held.wait()
        await answering.json(completion("big"))

    big.script = hold
    gateway.serve_routes("m", big.attached_route(capacity=2))
    asking = [asyncio.ensure_future(client.post(CHAT, json=BODY)) for _ in range(5)]
    await until(lambda: gateway.gateway.table.by_name["m"].queue.length == 3, "three requests wait")
    held.set()
    assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200] * 5
    assert most == 2


def make_certificate(directory: Path, *, names: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", f"subjectAltName={names}", "-days", "2")
    kind = ("-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", *kind, *subject, *files], check=True, capture_output=True)
    return certificate, key


async def test_a_request_that_comes_back_is_refused_instead_of_going_round(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    itself = Replica("itself", token=KEY)
    itself.port = int(gateway.url.rpartition(":")[2])
    gateway.serve_routes("m", itself.attached_route())
    refused = await client.post(CHAT, json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (508, "endpoint_loop")
    assert refused.headers.get_list("x-should-retry") in (["false"], [])
    requests = [line for line in gateway.metrics().splitlines() if line.startswith("corral_rejected_requests_total")]
    assert [line.rsplit(" ", 1)[1] for line in requests if "endpoint_loop" in line] == ["1"], "it went round once"
    # Beside it, another server answers.
    other = await replica("other")
    gateway.serve_routes("m", itself.attached_route(weight=1000), other.attached_route())
    for _ in range(4):
        assert (await client.post(CHAT, json=BODY)).json()["who"] == "other"
    assert {seen.headers["x-corral-hops"] for seen in other.seen} == {"replica-itself,replica-other"}
    elsewhere = {"X-Corral-Hops": "one, two,;;"}
    gateway.serve_routes("m", other.attached_route())
    await client.post(CHAT, json=BODY, headers=elsewhere)
    assert other.seen[-1].headers["x-corral-hops"] == "one,two,replica-other"
    many = {"X-Corral-Hops": ",".join(f"hop-{number}" for number in range(16))}
    assert (await client.post(CHAT, json=BODY, headers=many)).status_code == 508


@pytest.mark.processes
async def test_a_server_with_tls_must_have_the_right_ca_or_fingerprint_before_it_gets_the_key(
    gateway: RunningGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = Replica("tls")
    await server.start(tls=context)
    pem = certificate.read_text()
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    try:
        for trust in (ServerTrust(ca_pem=pem), ServerTrust(pin=pin), ServerTrust(ca_pem=pem, pin=pin)):
            gateway.serve_routes("m", server.attached_route(trust=trust))
            for _ in range(2):
                assert (await client.post(CHAT, json=BODY)).json()["who"] == "tls"
        seen = len(server.seen)
        for trust in (ServerTrust(), ServerTrust(pin="ab" * 32), ServerTrust(ca_pem=pem, pin="ab" * 32)):
            gateway.serve_routes("wrong", server.attached_route(trust=trust))
            (endpoint,) = gateway.gateway.table.by_name["wrong"].endpoints
            assert not await endpoint.link.probe(endpoint.health_probe, within_s=5)
            with pytest.raises(httpx.ReadTimeout):  # it waits for a server that can be trusted
                await client.post(CHAT, json={**BODY, "model": "wrong"}, timeout=0.5)
        gateway.gateway.limits = replace(gateway.gateway.limits, queue_wait_s=0.2)
        directory = tmp_path / "elsewhere"
        directory.mkdir()
        certificate, key = make_certificate(directory, names="DNS:elsewhere.example")
        context.load_cert_chain(certificate, key)
        gateway.serve_routes("m", server.attached_route(trust=ServerTrust(ca_pem=certificate.read_text())))
        answer = await client.post(CHAT, json=BODY)
        assert answer.status_code == 503
        assert "its certificate was rejected: " in answer.text
        assert "127.0.0.1" not in answer.text, "addresses of attached servers are for administrators"
        assert len(server.seen) == seen
    finally:
        await server.kill()


# Anthropic's API


def message(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-theirs",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 3},
    }  # fmt: skip


async def speak_messages(answering: Answering) -> None:
    request = answering.seen.json()
    assert answering.seen.headers["anthropic-version"]
    assert isinstance(request["max_tokens"], int)
    if answering.seen.path.endswith("count_tokens"):
        await answering.json({"input_tokens": 11})
        return
    calls = bool(request.get("tools"))
    if not request.get("stream"):
        found = message("hello")
        if calls:
            found["content"] = [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}]
            found["stop_reason"] = "tool_use"
        await answering.json(found)
        return
    await answering.start_stream()

    async def event(kind: str, **fields: Any) -> None:
        await answering.chunk(
            b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())
        )

    await event("message_start", message={**message(""), "content": [], "stop_reason": None})
    block: dict[str, Any] = {"type": "text", "text": ""}
    deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": part} for part in ("hel", "lo")]
    if calls:
        block = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ('{"city": ', '"Paris"}')]
    await event("content_block_start", index=0, content_block=block)
    for delta in deltas:
        await event("content_block_delta", index=0, delta=delta)
    await event("content_block_stop", index=0)
    reason = "tool_use" if calls else "end_turn"
    await event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 3})
    await event("message_stop")
    await answering.end_stream()


@pytest.fixture
async def claude(gateway: RunningGateway, replica: Start) -> Replica:
    server = await replica("claude", token="sk-ant")
    server.script = speak_messages
    gateway.serve_routes("m", server.attached_route(protocol=UpstreamProtocol.ANTHROPIC, model="claude-theirs"))
    return server


async def test_a_server_of_anthropics_api_gets_messages_as_they_are(
    gateway: RunningGateway, client: httpx.AsyncClient, claude: Replica
) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "thinking": {"x": 1}}
    answer = await client.post("/v1/messages", json=body)
    assert answer.json()["content"] == [{"type": "text", "text": "hello"}]
    counted = await client.post("/v1/messages/count_tokens", json=body)
    assert counted.json() == {"input_tokens": 11}
    first, second = claude.seen
    assert (first.path, second.path) == ("/v1/messages", "/v1/messages/count_tokens")
    assert first.json() == {**body, "model": "claude-theirs"}
    assert first.headers["x-api-key"] == "sk-ant"
    assert "authorization" not in first.headers


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("stream", [False, True])
async def test_openais_own_client_talks_to_a_server_of_anthropics_api(
    gateway: RunningGateway, claude: Replica, stream: bool
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
        messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        if stream:
            events = await client.chat.completions.create(
                model="m", messages=messages, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in events]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            usage, reason = chunks[-1].usage, chunks[-2].choices[0].finish_reason
            assert {chunk.model for chunk in chunks} == {"m"}
        else:
            answer = await client.chat.completions.create(model="m", messages=messages, temperature=1.7, stop="x")
            text, usage, reason = answer.choices[0].message.content or "", answer.usage, answer.choices[0].finish_reason
            assert answer.model == "m"
        assert (text, reason) == ("hello", "stop")
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (7, 3)
    sent = claude.seen[0].json()
    assert (sent["system"], sent["model"]) == ("Be brief.", "claude-theirs")
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert f'corral_tokens_total{{model="m",node="127.0.0.1:{claude.port}",direction="in"}} 7' in gateway.metrics()


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_work_across_both_apis(
    gateway: RunningGateway, client: httpx.AsyncClient, claude: Replica, stream: bool
) -> None:
    call = {"id": "toolu_0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "user", "content": "Rome, then Paris"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_0", "content": "sunny"},
        {"role": "user", "content": "go on"},
    ]
    request = {"model": "m", "messages": messages, "tools": [TOOL], "tool_choice": "required", "stream": stream}
    answer = await client.post(CHAT, json=request)
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        parts = [one for event in events for one in event["choices"][0]["delta"].get("tool_calls", [])]
        assert (parts[0]["id"], parts[0]["function"]["name"]) == ("toolu_1", "weather")
        arguments = "".join(part["function"]["arguments"] for part in parts)
        reason = events[-1]["choices"][0]["finish_reason"]
    else:
        choice = answer.json()["choices"][0]
        (found,) = choice["message"]["tool_calls"]
        assert (found["id"], found["function"]["name"]) == ("toolu_1", "weather")
        arguments, reason = found["function"]["arguments"], choice["finish_reason"]
    assert (json.loads(arguments), reason) == ({"city": "Paris"}, "tool_calls")
    sent = claude.seen[0].json()
    assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][2]["content"][0]["tool_use_id"] == "toolu_0"
    assert sent["tool_choice"] == {"type": "any"}


async def test_responses_and_ollamas_chat_reach_a_server_of_anthropics_api_in_two_steps(
    gateway: RunningGateway, client: httpx.AsyncClient, claude: Replica
) -> None:
    answer = await client.post("/v1/responses", json={"model": "m", "input": "hi"})
    assert answer.json()["output"][-1]["content"][0]["text"] == "hello"
    answer = await client.post("/api/chat", json={"model": "m", "messages": BODY["messages"], "stream": True})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == "hello"
    assert (lines[-1]["done"], lines[-1]["prompt_eval_count"]) == (True, 7)
    assert {seen.path for seen in claude.seen} == {"/v1/messages"}


async def test_what_a_server_of_anthropics_api_lacks_goes_to_another_endpoint_or_is_refused_with_a_reason(
    gateway: RunningGateway, client: httpx.AsyncClient, claude: Replica, replica: Start
) -> None:
    wanted = {"model": "m", "input": "x"}
    refused = await client.post("/v1/embeddings", json=wanted)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "endpoint_not_supported")
    several = await client.post(CHAT, json={**BODY, "n": 2})
    assert (several.status_code, "one answer" in several.json()["error"]["message"]) == (400, True)
    other = await replica("other")
    both = [claude.attached_route(protocol=UpstreamProtocol.ANTHROPIC), other.attached_route()]
    gateway.serve_routes("m", *both)
    for _ in range(6):
        assert (await client.post("/v1/embeddings", json=wanted)).json()["who"] == "other"
    assert gateway.open_requests() == 0


async def test_errors_of_anthropics_api_have_openais_form(
    gateway: RunningGateway, client: httpx.AsyncClient, claude: Replica
) -> None:
    async def refuse(answering: Answering) -> None:
        error = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}
        await answering.json({"type": "error", "error": error}, status=400)

    claude.script = refuse
    answer = await client.post(CHAT, json=BODY)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")


# 429, 499, 503 and the 52x are of proxies; 529 and 530 of Anthropic and Cloudflare.
FOREIGN_STATUSES = (429, 499, 503, 520, 524, 529, 530, 599)


@pytest.mark.parametrize("status", FOREIGN_STATUSES)
@pytest.mark.parametrize("path", ["/v1/messages", CHAT, "/api/chat", "/v1/responses"])
async def test_a_status_that_no_standard_has_reaches_the_client_at_once(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, path: str, status: int
) -> None:
    async def refuse(answering: Answering) -> None:
        error = {"type": "overloaded_error", "message": "Overloaded"}
        await answering.json({"type": "error", "error": error}, status=status)

    servers = [await replica("one"), await replica("two")]
    for server in servers:
        server.script = refuse
    body = {**BODY, "max_tokens": 9, "input": "hi"}
    partial, renamed = [
        [server.attached_route(protocol=protocol, model=model) for server in servers]
        for protocol, model in ((UpstreamProtocol.ANTHROPIC, ""), (UpstreamProtocol.OPENAI, "theirs"))
    ]
    for routes in (partial[:1], renamed[:1], partial, renamed):
        gateway.serve_routes("m", *routes)
        for stream in (False, True):
            answer = await client.post(path, json={**body, "stream": stream}, timeout=5)
            assert (answer.status_code, "Overloaded" in answer.text) == (status, True), answer.text
            if path == "/v1/messages" and status == 529:
                assert answer.json()["error"]["type"] == "overloaded_error"
    assert gateway.open_requests() == 0
