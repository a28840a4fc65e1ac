"""60 streams at a time over three replicas that are killed: every one ends complete, with the text that it should have.

`./dev bench continuation` does the same with real engines, and kills a whole worker too."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import openai

from corral.core.replicas.routing import ASSISTANT_PREFILL
from harness.gateway import KEY, Answering, Replica, RunningGateway
from harness.waiting import until

Start = Callable[..., Coroutine[Any, Any, Replica]]
CLIENTS, ROUNDS, KILLS = 60, 6, 5
PIECE = 7
TOKEN_S = 0.01


def text_for(prompt: str) -> str:
    """Pieces of it end within words, and some with a space, which a replica is not handed over."""
    return " ".join(f"{prompt} says {number}ä." for number in range(12))


async def speak(answering: Answering) -> None:
    """Continues what the assistant has said, as llama.cpp does."""
    body = answering.seen.json()
    given = body["messages"]
    whole = text_for(given[0]["content"])
    said = given[-1]["content"].rstrip() if given[-1]["role"] == "assistant" else ""
    assert whole.startswith(said), (whole, said)
    if not body.get("stream"):
        usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
        await answering.json({"choices": [], "usage": usage})
        return
    await answering.start_stream()
    for at in range(len(said), len(whole), PIECE):
        await asyncio.sleep(TOKEN_S)
        await answering.event(_chunk({"content": whole[at : at + PIECE]}, None))
    await answering.event(_chunk({}, "stop"))
    await answering.event("[DONE]")
    await answering.end_stream()


def _chunk(delta: dict[str, str], reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


class Clients:
    def __init__(self, gateway: RunningGateway) -> None:
        self._client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=60)
        self.done = 0
        self.wrong: list[str] = []

    async def until_done(self, count: int) -> None:
        await until(lambda: self.done >= count, f"{count} streams are complete", within_s=60)

    async def run(self, number: int) -> None:
        for turn in range(ROUNDS):
            await self._stream(f"client {number}, turn {turn}")
        if self.done == CLIENTS * ROUNDS:
            await self._client.close()

    async def _stream(self, prompt: str) -> None:
        said, reason, ids = "", None, set()
        async for chunk in await self._client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": prompt}], stream=True, temperature=0, seed=1
        ):
            ids.add(chunk.id)
            for choice in chunk.choices:
                said += choice.delta.content or ""
                reason = choice.finish_reason or reason
        if (said, reason, len(ids)) != (text_for(prompt), "stop", 1):
            self.wrong.append(f"{prompt}: {reason} {ids} {said!r}")
        self.done += 1


async def kill(*victims: Replica) -> int:
    """Each is started again at once, as a worker would do. How many streams it had."""
    had = sum(victim.open for victim in victims)
    for victim in victims:
        await victim.kill()
    await until(lambda: not any(victim.open for victim in victims), "nothing is left of it")
    for victim in victims:
        await victim.start(victim.port)
    return had


async def test_every_stream_is_complete_while_replicas_are_killed(gateway: RunningGateway, replica: Start) -> None:
    a, b, c = replicas = [await replica(name) for name in "abc"]
    for one in replicas:
        one.script = speak
    gateway.serve("m", *replicas, continuation=ASSISTANT_PREFILL)
    clients = Clients(gateway)
    broken = 0
    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(clients.run(number))
        for turn, victims in enumerate([(a,), (b,), (c,), (a,), (b, c)], 1):
            await clients.until_done(turn * CLIENTS * ROUNDS // (KILLS + 1))
            broken += await kill(*victims)
    assert clients.wrong == []
    assert clients.done == CLIENTS * ROUNDS
    assert broken >= KILLS, "no kill met a stream"
    assert "corral_continued_answers_total" in gateway.metrics()
    assert gateway.open_requests() == 0
