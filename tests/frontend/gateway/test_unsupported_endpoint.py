"""Endpoints that a backend does not have, with the answers of real servers."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from harness.gateway import Answering, Replica, RunningGateway

Start = Callable[..., Coroutine[Any, Any, Replica]]
SPEECH = {"model": "m", "input": "hi", "voice": "v"}
LLAMA = {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}


def raw(status: int, body: bytes, kind: str) -> tuple[bytes, bytes]:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode(), body


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(404, json.dumps(LLAMA).encode(), "application/json; charset=utf-8", id="llama.cpp"),
        pytest.param(404, b'{"detail":"Not Found"}', "application/json", id="fastapi"),
        pytest.param(405, b'{"detail":"Method Not Allowed"}', "application/json", id="another-method"),
        pytest.param(404, b"404 page not found\n", "text/plain", id="go"),
        pytest.param(404, b"<html><h1>Not Found</h1></html>", "text/html", id="page"),
        pytest.param(404, b"", "text/plain", id="nothing"),
        pytest.param(501, b'{"error":{"message":"Start it with --reranking"}}', "application/json", id="switched-off"),
    ],
)
@pytest.mark.parametrize("in_parts", [False, True])
async def test_an_unsupported_endpoint_gives_an_error_in_openais_form(
    gateway: RunningGateway,
    client: httpx.AsyncClient,
    replica: Start,
    status: int,
    body: bytes,
    kind: str,
    in_parts: bool,
) -> None:
    one = await replica("one")

    async def script(answering: Answering) -> None:
        head, content = raw(status, body, kind)
        await answering.send(head if in_parts else head + content)
        if in_parts and content:
            for at in range(0, len(content), 9):
                await answering.send(content[at : at + 9])

    one.script = script
    gateway.serve("m", one)
    for _ in range(2):
        answer = await client.post("/v1/audio/speech", json=SPEECH)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (404, "endpoint_not_supported", "model")
        assert "'m' does not support /v1/audio/speech: its backend has no such endpoint." in error["message"]
        assert ("The backend's message: Start it with --reranking" in error["message"]) is (status == 501)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"]
    assert (one.connections, gateway.open_requests()) == (1, 0), "nothing was cut off or tried again"


async def test_other_not_found_errors_of_a_backend_are_relayed(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    one = await replica("one")
    said = {"error": {"message": "Response with id 'resp_1' not found.", "type": "invalid_request_error"}}

    async def script(answering: Answering) -> None:
        await answering.json(said, status=404)

    one.script = script
    gateway.serve("m", one, endpoints=frozenset({"/v1/responses"}))
    answer = await client.post("/v1/responses", json={"model": "m", "input": "hi", "previous_response_id": "resp_1"})
    assert (answer.status_code, answer.json()) == (404, said)
