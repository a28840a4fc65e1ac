"""Endpoints that only some backends have: relayed to those, explained for the others."""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import openai
import pytest

from harness.gateway import KEY, Answering, Replica, RunningGateway

Start = Callable[..., Coroutine[Any, Any, Replica]]


@pytest.fixture
async def asking(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


async def translate(client: openai.AsyncOpenAI) -> object:
    with pytest.deprecated_call():  # by OpenAI; other servers go on offering it
        request = client.audio.translations.create(model="alias", file=("a.wav", b"gesprochen"))
    return (await request).text


async def edit(client: openai.AsyncOpenAI) -> object:
    drawn = await client.images.edit(model="alias", image=("a.png", b"\x89PNG"), prompt="add a horse")
    return (drawn.data or [])[0].b64_json


async def moderate(client: openai.AsyncOpenAI) -> object:
    return (await client.moderations.create(model="alias", input="a horse")).results[0].flagged


async def score(client: openai.AsyncOpenAI) -> object:
    found: Any = await client.post(
        "/score", body={"model": "alias", "text_1": "horse", "text_2": ["mare"]}, cast_to=object
    )
    return found["data"][0]["score"]


CALLS = [
    ("/v1/audio/translations", translate, {"text": "spoken"}, "spoken"),
    ("/v1/images/edits", edit, {"created": 1, "data": [{"b64_json": "iVBO"}]}, "iVBO"),
    ("/v1/moderations", moderate, {"id": "m", "model": "m", "results": [{"flagged": False}]}, False),
    ("/v1/score", score, {"object": "list", "data": [{"index": 0, "score": 0.5}]}, 0.5),
]


@pytest.mark.parametrize(("path", "ask", "answer", "expected"), CALLS)
async def test_a_backend_that_has_the_endpoint_gets_the_request(
    gateway: RunningGateway,
    asking: openai.AsyncOpenAI,
    replica: Start,
    path: str,
    ask: Callable[[openai.AsyncOpenAI], Coroutine[Any, Any, object]],
    answer: dict[str, Any],
    expected: object,
) -> None:
    served = await replica("a")

    async def has_it(answering: Answering) -> None:
        await answering.json(answer)

    served.script = has_it
    gateway.serve("m", served, aliases=("alias",))
    assert await ask(asking) == expected
    assert served.seen[0].path == path
    assert b"alias" not in served.seen[0].body, "the replica knows only the model's own name"


@pytest.mark.parametrize(("path", "ask", "answer", "expected"), CALLS)
async def test_a_backend_without_the_endpoint_is_named(
    gateway: RunningGateway,
    asking: openai.AsyncOpenAI,
    replica: Start,
    path: str,
    ask: Callable[[openai.AsyncOpenAI], Coroutine[Any, Any, object]],
    answer: dict[str, Any],
    expected: object,
) -> None:
    served = await replica("a")

    async def lacks_it(answering: Answering) -> None:
        await answering.json({"error": {"message": "File Not Found"}}, status=404)

    served.script = lacks_it
    gateway.serve("m", served, aliases=("alias",))
    with pytest.raises(openai.NotFoundError, match=f"does not support {path}") as refused:
        await ask(asking)
    assert refused.value.code == "endpoint_not_supported"
