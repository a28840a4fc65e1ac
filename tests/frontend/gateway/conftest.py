from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx
import pytest

from harness.lane import KEY, Replica, RunningLane, running_lane


@pytest.fixture
async def lane() -> AsyncIterator[RunningLane]:
    async with running_lane() as running:
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
async def client(lane: RunningLane) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=lane.url, headers=headers, timeout=20) as client:
        yield client
