"""The gateway counts how each version serves, and the store keeps it."""

from collections.abc import Mapping
from typing import Any

from corral.core.backends.serving_figures import ServingFigures, VersionKey
from corral.core.replicas.routing import ModelRoute
from corral.frontend.gateway.version_counter import VersionCounter
from frontend.gateway.test_failures import BODY, CHAT, STREAM, die_at_once
from harness.gateway import Answering, Replica, calling, running_gateway


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.sums: dict[VersionKey, ServingFigures] = {}

    async def add(self, writer: str, batch: int, counts: Mapping[VersionKey, ServingFigures]) -> None:
        for key, figures in counts.items():
            self.sums[key] = self.sums.get(key, ServingFigures()) + figures

    async def prune(self) -> None:
        pass


async def stream(answering: Answering) -> None:
    await answering.start_stream()
    for word in ("a", "b", "c"):
        await answering.event({"choices": [{"delta": {"content": word}}]})
    await answering.event("[DONE]")
    await answering.chunk(b"")


async def break_off(answering: Answering) -> None:
    await answering.start_stream()
    await answering.event({"choices": [{"delta": {"content": "a"}}]})
    answering.die()


async def fail(answering: Answering) -> None:
    await answering.json({"error": "it fell over"}, status=500)


async def refuse(answering: Answering) -> None:
    await answering.json({"error": "no such option"}, status=400)


async def count(script: Any, body: dict[str, Any]) -> ServingFigures:
    kept, replica = Kept(), Replica("one")
    counter = VersionCounter(kept, writer="run")
    await replica.start(0)
    replica.script = script
    try:
        async with running_gateway(versions=counter) as gateway, calling(gateway) as client:
            gateway.routes.put(ModelRoute(model="m", replicas=(replica.route(digest="sha256:new"),)))
            gateway.gateway.table.apply(gateway.routes.snapshot)
            await client.post(CHAT, json=body)
            gateway.gateway.accounting.fold()
            await counter.write()
    finally:
        await replica.kill()
    assert set(kept.sums) <= {VersionKey("m", "id-of-one", "sha256:new")}
    return next(iter(kept.sums.values()))


async def test_a_stream_counts_with_its_first_token_and_its_tokens() -> None:
    figures = await count(stream, STREAM)
    assert (figures.requests, figures.errors, figures.streams, figures.tokens_out) == (1, 0, 1, 3)


async def test_errors_of_the_replica_count_and_those_of_clients_do_not() -> None:
    assert [(one.requests, one.errors) for one in [await count(fail, BODY), await count(refuse, BODY)]] == [
        (1, 1),
        (1, 0),
    ]
    broken = await count(break_off, STREAM)
    assert (broken.requests, broken.errors) == (1, 1)
    dead = await count(die_at_once, BODY)
    assert dead.errors == dead.requests >= 1
