"""Web pages of other origins, and paths that are nearly right."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx
import pytest

from corral.core.access.key_limits import LimitsInForce
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.protocols.ollama import CLIENT_PATHS as OLLAMA_CLIENT_PATHS
from corral.frontend.http import client_paths
from corral.frontend.http.client_paths import near_client_path
from harness.gateway import KEY, Replica, RunningGateway, calling, running_gateway

ASK = {"Origin": "https://app.example", "Access-Control-Request-Headers": "authorization, content-type"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
async def test_pages_may_call_the_client_apis_where_the_setting_allows_it(path: str) -> None:
    async with running_gateway(limits=GatewayLimits(cors_origin="*")) as gateway:
        async with httpx.AsyncClient(base_url=gateway.url) as page:
            asked = await page.options(path, headers=ASK)
            assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, "*")
            assert asked.headers["access-control-allow-headers"] == "authorization, content-type"
            refused = await page.post(path, json={"model": "m"})
            assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "*")
        async with calling(gateway) as client:
            listed = await client.get("/v1/models")
            assert listed.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in listed.headers


@pytest.mark.parametrize(("path", "headers"), [("/v1/chat/completions", {}), ("/v1/messages", {"x-api-key": KEY})])
async def test_pages_may_read_what_limits_and_errors_tell(
    replica: Callable[..., Coroutine[Any, Any, Replica]], path: str, headers: dict[str, str]
) -> None:
    one = await replica("one")
    async with running_gateway(limits=GatewayLimits(cors_origin="*")) as gateway, calling(gateway) as client:
        gateway.serve("m", one)
        limits = LimitsInForce(tokens_per_day=9, requests_per_minute=5, tokens_per_minute=900)
        gateway.keys.known[KEY] = replace(gateway.keys.known[KEY], limits=limits)
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        told: set[str] = set()
        for status in (200, 429):
            answer = await client.post(path, json=body, headers=headers)
            assert answer.status_code == status
            told |= {name for name in answer.headers if "-" in name and not name.startswith("access-control")}
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    assert {"retry-after", "x-should-retry", "x-request-id"} <= told
    assert any("ratelimit" in name for name in told)
    assert told - {"content-type", "content-length"} <= exposed


async def test_without_the_setting_no_page_may(gateway: RunningGateway, client: httpx.AsyncClient) -> None:
    asked = await client.options("/v1/chat/completions", headers=ASK)
    assert asked.status_code == 405
    assert "access-control-allow-origin" not in asked.headers


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/models", "/v1/models"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/messages", "/v1/messages"),
        ("/v1/api/chat", "/api/chat"),
        ("/api/v1/chat/completions", "/v1/chat/completions"),
        ("/api/chats", "/api/chat"),
        ("/api/chat/", "/api/chat"),
        ("/api/generates", "/api/generate"),
        ("/generate", "/api/generate"),
        ("/v1/chat", "/v1/chat/completions"),
        ("/v1/image", "/v1/images/generations"),
        ("/v1/embedding", "/v1/embeddings"),
        ("/v1/", ""),
        ("/v1/x", ""),
        ("/v1/files", ""),
        ("/api/models", ""),
        ("/api/chat", ""),
        ("/", ""),
    ],
)
def test_the_near_path_is_found(path: str, near: str) -> None:
    assert near_client_path(path) == near


async def test_an_unknown_path_names_the_near_one(gateway: RunningGateway, client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/v1/chat/completions", json={})
    assert answer.status_code == 404
    assert "did you mean /v1/chat/completions?" in answer.json()["error"]["message"]


def test_ollamas_paths_are_listed_once() -> None:
    assert frozenset(path.encode() for path in client_paths.OLLAMA_CLIENT) == OLLAMA_CLIENT_PATHS
