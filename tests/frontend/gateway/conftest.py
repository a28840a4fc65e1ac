from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import pytest

from harness.gateway import KEY, Replica, RunningGateway, running_gateway


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
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=20) as client:
        yield client
