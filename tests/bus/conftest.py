"""Connections to a real nats-server, closed in order when a test ends."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from corral.bus.client import Bus, Credentials, connect_bus
from corral.bus.credentials import Permissions
from harness.nats import Nats

Connect = Callable[..., Awaitable[Bus]]


@pytest.fixture
async def connect(nats: Nats) -> AsyncIterator[Connect]:
    """`await connect("me", permissions)`; more keywords go into the options. Without permissions all is allowed."""
    async with AsyncExitStack() as opened:

        async def open_one(
            name: str = "me",
            permissions: Permissions | None = None,
            *,
            credentials: Callable[[], Credentials | None] | None = None,
            inbox: str | None = None,
            **more: Any,
        ) -> Bus:
            own = nats.credentials(permissions)
            options = nats.options(own, inbox=inbox or f"_INBOX.{name}")
            options = replace(options, credentials=credentials or options.credentials, **more)
            return await opened.enter_async_context(connect_bus(options))

        yield open_one
