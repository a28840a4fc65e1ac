"""The route table never goes back to an older state, and rejects no model before it has read the newest routes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from corral.core.errors import Unavailable
from corral.core.replicas.routing import ModelRoute, RouteReplica, RouteSnapshot
from corral.frontend.gateway.endpoints import Endpoint, ServedModel
from corral.frontend.gateway.route_table import RouteTable
from harness.gateway import Replica, Routes, RunningGateway


class SlowRoutes(Routes):
    """Each reader holds what it has read until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.reading = asyncio.Event()
        self.reads = 0

    async def read_routes(self) -> RouteSnapshot:
        found = self.snapshot
        self.reads += 1
        self.reading.set()
        await self.go_on.wait()
        return found


def no_target(_served: ServedModel, _replica: RouteReplica) -> Endpoint:
    raise AssertionError("these routes have no replicas")


async def test_what_was_read_earlier_never_replaces_what_was_read_later() -> None:
    routes = SlowRoutes()
    table = RouteTable(routes, make_endpoint=no_target)
    routes.put(ModelRoute(model="old", replicas=()))
    looking = asyncio.ensure_future(table.catch_up())
    await routes.reading.wait()
    routes.put(ModelRoute(model="new", replicas=()))
    asked = [asyncio.ensure_future(table.catch_up()) for _ in range(100)]
    await asyncio.sleep(0)
    routes.go_on.set()
    await asyncio.gather(looking, *asked)
    assert set(table.by_name) == {"new"}
    assert routes.reads == 2, "the hundred share one look"


async def test_a_failed_read_counts_for_no_caller() -> None:
    routes = Routes()
    table = RouteTable(routes, make_endpoint=no_target)
    routes.put(ModelRoute(model="m", replicas=()))
    routes.broken = Unavailable("the store is away")
    asked = [asyncio.ensure_future(table.catch_up()) for _ in range(3)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(error) for error in found] == ["the store is away"] * 3
    routes.broken = None
    await table.catch_up()
    assert set(table.by_name) == {"m"}


async def test_a_model_that_another_frontend_added_answers_the_first_request(
    gateway: RunningGateway, replica: Callable[..., Coroutine[Any, Any, Replica]], client: httpx.AsyncClient
) -> None:
    added = ModelRoute(model="added", replicas=((await replica("one")).route(),))
    question = {"model": "added", "messages": [{"role": "user", "content": "hi"}]}
    gateway.routes.put(added)
    answer = await client.post("/v1/chat/completions", json=question)
    assert answer.status_code == 200, answer.text
    gateway.routes.broken = Unavailable("the store is away")
    unsure = await client.post("/v1/chat/completions", json={**question, "model": "other"})
    assert unsure.status_code == 503
    assert "the store is away" in unsure.text
