from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import pytest

from harness.gateway import Replica, RunningGateway, calling, running_gateway


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as running:
        yield running


@pytest.fixture
async def replica() -> AsyncIterator[Callable[..., Coroutine[Any, Any, Replica]]]:
    started: list[Replica] = []

    async def start(name: str, *, port: int = 0, **options: Any) -> Replica:
        one = Replica(name, **options)
        await one.start(port)
        started.append(one)
        return one

    yield start
    for one in started:
        await one.kill()


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(gateway) as client:
        yield client
