"""Any input gets a clear answer, with bounded memory and time."""

import asyncio
import json
import resource
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limits import GatewayLimits
from corral.system.http_limits import HttpLimits
from harness.gateway import KEY, Replica, RunningGateway, running_gateway
from harness.streams import connect
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n"


async def talk(port: int, data: bytes, *, within_s: float = 60.0) -> bytes:
    """Everything the gateway says until it closes or goes quiet for good."""
    reader, writer = await connect(port)
    writer.write(data)
    try:
        async with asyncio.timeout(within_s):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
            return head + await reader.readexactly(length)
    finally:
        writer.close()


def error_of(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        pytest.param(b"", 400, "JSON", id="empty"),
        pytest.param(b"{", 400, "JSON", id="cut-off"),
        pytest.param(b"[1]", 400, "object", id="a-list"),
        pytest.param(b'"m"', 400, "object", id="a-string"),
        pytest.param(b'{"model": 7}', 400, "model", id="model-is-a-number"),
        pytest.param(b'{"model": ["m"]}', 400, "model", id="model-is-a-list"),
        pytest.param(b'{"model": "m", "stream": "yes"}', 400, "stream", id="stream-is-a-string"),
        pytest.param(b'{"messages": []}', 400, "model", id="no-model"),
        pytest.param(b'{"model": ""}', 400, "model", id="empty-model"),
        pytest.param(b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested", id="deep"),
        pytest.param(b'{"model":"m"} trailing', 400, "JSON", id="trailing"),
        pytest.param(b"\xff\xfe{}", 400, "JSON", id="not-utf-8"),
        pytest.param(b'{"model":"\xff"}', 400, "UTF-8", id="a-name-that-is-not-utf-8"),
        pytest.param(b'{"model":"an-alias","\xff":1}', 400, "UTF-8", id="a-field-that-is-not-utf-8"),
        pytest.param(b'{"model":"smolm2"}', 404, "smollm2", id="near-miss"),
        pytest.param(b'{"model":"zzzzzz"}', 404, "/v1/models", id="unknown"),
        pytest.param(b'{"model":"' + b"x" * 10_000 + b'"}', 404, "does not exist", id="long-name"),
    ],
)
async def test_an_invalid_body_is_rejected(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, body: bytes, status: int, word: str
) -> None:
    one = await replica("one")
    gateway.serve("smollm2", one, aliases=("an-alias",))
    answer = await client.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    error = answer.json()["error"]
    assert answer.status_code == status
    assert word in error["message"]
    assert len(answer.content) < 1000
    assert error["type"] == "invalid_request_error"
    assert not one.seen


async def test_an_internal_error_is_answered_and_the_connection_continues(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    gateway.serve("m", await replica("one"))
    good = gateway.keys.known[KEY]
    gateway.keys.known[KEY] = ClientKey("key-1", "one", models=7)  # type: ignore[arg-type]  # which no code expects
    answer = await client.post(CHAT, json={"model": "m"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    gateway.keys.known[KEY] = good
    assert (await client.post(CHAT, json={"model": "m"})).status_code == 200


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"no parts here"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n',
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"h" * 5000 + b"\r\n--b--\r\n"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n\xff\r\n--b--\r\n',
        ),
    ],
)
async def test_an_invalid_form_is_rejected(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start, content_type: str, body: bytes
) -> None:
    gateway.serve("m", await replica("one"))
    answer = await client.post("/v1/audio/transcriptions", content=body, headers={"Content-Type": content_type})
    assert answer.status_code == 400, answer.text


async def test_without_a_key_every_request_is_rejected(gateway: RunningGateway, replica: Start) -> None:
    gateway.serve("m", await replica("one"))
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eA=="}):
            for answer in (
                await client.get("/v1/models", headers=headers),
                await client.post(CHAT, json={"model": "m"}, headers=headers),
                await client.get("/v1/whatever", headers=headers),
            ):
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"


async def test_wrong_methods_and_paths(gateway: RunningGateway, client: httpx.AsyncClient) -> None:
    assert (await client.get(CHAT)).status_code == 405
    assert (await client.get(CHAT)).headers["allow"] == "POST"
    assert (await client.post("/v1/models")).status_code == 405
    assert (await client.delete("/v1/models/x")).status_code == 405
    assert (await client.post("/v1/nothing", json={"model": "m"})).status_code == 404
    assert (await client.post("/v1/../admin", json={})).text == "the app"


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        pytest.param(HEAD + b"X: a\rb\r\n\r\n", {400}, id="bare-cr"),
        pytest.param(HEAD + b"X: a\0b\r\n\r\n", {400}, id="nul"),
        pytest.param(HEAD + b"Bad Name: x\r\n\r\n", {400}, id="space-in-name"),
        pytest.param(HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", {400}, id="two-lengths"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", {400}, id="negative-length"),
        pytest.param(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}, id="smuggling"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", {400}, id="odd-encoding"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", {400}, id="bad-chunk"),
        pytest.param(HEAD + b"A: " + b"x" * 200_000 + b"\r\n\r\n", {431, 400}, id="huge-header"),
        pytest.param(HEAD + b"".join(b"H%d: x\r\n" % n for n in range(500)) + b"\r\n", {431}, id="many-headers"),
        pytest.param(HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", {400, 413}, id="absurd-length"),
        pytest.param(b"POST /v1/chat/completions HTTP/9.9\r\n\r\n", {400}, id="odd-version"),
    ],
)
async def test_malformed_headers_are_rejected(
    gateway: RunningGateway, request_bytes: bytes, statuses: set[int]
) -> None:
    status, error = error_of(await talk(gateway.port, request_bytes))
    assert status in statuses, error
    assert error["message"]
    assert gateway.gateway.buffered_bytes == 0


@pytest.mark.parametrize(("path", "form"), [("/v1/messages", "anthropic"), ("/api/chat", "ollama"), (CHAT, "openai")])
async def test_early_rejections_have_the_clients_form(path: str, form: str) -> None:
    async with running_gateway(limits=GatewayLimits(body_bytes=1000)) as gateway:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()
        short = head + b"Content-Length: 2\r\n\r\n{}"
        for data, status in (
            (head + b"".join(b"H%d: x\r\n" % n for n in range(150)) + b"\r\n", 431),
            (head + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, 413),
            (head + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 1001\r\n\r\n", 413),
            (short * 2000, 429),
        ):
            answers = await talk(gateway.port, data)
            at = answers.rfind(b"HTTP/1.1 ")
            assert answers[at:].startswith(b"HTTP/1.1 %d" % status), answers[at:]
            body = json.loads(answers[at:].partition(b"\r\n\r\n")[2])
            assert isinstance(body["error"], str) is (form == "ollama"), body
            assert (body.get("type") == "error") is (form == "anthropic"), body


async def test_a_body_over_the_limit_is_rejected_at_once_or_as_it_grows() -> None:
    async with running_gateway(limits=GatewayLimits(body_bytes=100_000)) as gateway:
        status, error = error_of(await talk(gateway.port, HEAD + b"Content-Length: 100001\r\n\r\n"))
        assert (status, error["code"]) == (413, "body_too_large")
        chunk = b"%x\r\n%b\r\n" % (50_000, b"x" * 50_000)
        status, error = error_of(await talk(gateway.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 8))
        assert (status, error["code"]) == (413, "body_too_large")
        # A client that is still sending reads the answer too.
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as client:
            answer = await client.post(gateway.url + CHAT, content=b"x" * 5_000_000, timeout=20)
        assert answer.status_code == 413
        assert gateway.gateway.buffered_bytes == 0


async def test_a_client_that_expects_continue_gets_it(gateway: RunningGateway, replica: Start) -> None:
    gateway.serve("m", await replica("one"))
    reader, writer = await connect(gateway.port)
    writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 13\r\n\r\n")
    async with asyncio.timeout(60):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"model":"m"}')
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_an_offer_to_upgrade_is_ignored(gateway: RunningGateway, replica: Start) -> None:
    gateway.serve("m", await replica("one"))
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 13\r\n\r\n" + b'{"model":"m"}'
    assert (await talk(gateway.port, HEAD + upgrade)).startswith(b"HTTP/1.1 200")


async def test_bodies_of_all_clients_together_are_bounded() -> None:
    limits = GatewayLimits(body_bytes=1_000_000, bodies_bytes=2_000_000)
    async with running_gateway(limits=limits) as gateway:
        writers = []
        for _ in range(3):
            _, writer = await connect(gateway.port)
            writer.write(HEAD + b"Content-Length: 900000\r\n\r\n" + b"x" * 850_000)
            writers.append(writer)
        await until(lambda: 'status="503",reason="overloaded"' in gateway.metrics(), "one is refused")
        assert gateway.gateway.buffered_bytes <= 2_300_000
        for writer in writers:
            writer.close()
        await until(lambda: gateway.gateway.buffered_bytes == 0, "nothing is kept")


async def test_slow_senders_are_disconnected() -> None:
    limits = GatewayLimits(body_within_s=0.5)
    http = HttpLimits(head_within_s=0.5, idle_s=0.5, discard_within_s=0.5)

    async def send_part(port: int, start: bytes) -> asyncio.StreamWriter:
        reader, writer = await connect(port)
        writer.write(start)
        async with asyncio.timeout(60):
            said = await reader.read()
        assert not said or said.startswith(b"HTTP/1.1 408")
        return writer

    starts = (b"", b"PO", b"POST /v1/x HTTP/1.1\r\nA:", HEAD + b"Content-Length: 10\r\n\r\nhalf")
    async with running_gateway(limits=limits, http=http) as gateway:
        writers = await asyncio.gather(*(send_part(gateway.port, start) for start in starts))
        await until(lambda: not gateway.gateway.connections, "the server has closed them, though no client has")
        for writer in writers:
            writer.close()


async def test_a_thousand_idle_and_slow_connections_cost_little(replica: Start) -> None:
    async with running_gateway() as gateway:
        gateway.serve("m", await replica("one"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        writers = []
        for number in range(1000):
            _, writer = await connect(gateway.port)
            writer.write((HEAD + b"Content-Length: 100\r\n\r\nx")[: number % 140])
            writers.append(writer)
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as client:
            assert (await client.post(gateway.url + CHAT, json={"model": "m"}, timeout=20)).status_code == 200
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        for writer in writers:
            writer.close()
    assert grown < 200 * 1024, f"{grown} KiB for 1000 connections, both ends"
