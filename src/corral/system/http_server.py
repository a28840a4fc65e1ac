"""Serves an ASGI app on a socket that already listens, until cancelled.

A *lane* may take requests for itself before any of them reaches the app: it gets every new connection, and hands over
those whose next request is not its own. The app's side hands a connection back when the lane's turn comes again.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp

from corral.system.descriptors import descriptor_limit
from corral.system.http_app import AppConnection, TakeBack
from corral.system.http_clients import Clients, Connected
from corral.system.http_limits import HttpLimits, connections_within

STOP_WITHIN_S = 3


class AsgiSide(Protocol):
    """What a lane's connection sees of the server."""

    limits: HttpLimits
    clients: Clients

    def enter(self, connection: "RawConnection") -> None:
        """The server waits for it when it stops."""
        ...

    def leave(self, connection: "RawConnection") -> None: ...

    def take(self, client: Connected, data: bytes, take_back: TakeBack) -> None:
        """The app answers what begins with `data`."""
        ...


class RawConnection(Protocol):
    def shutdown(self) -> None: ...


class RawHandler(Protocol):
    def connect(self, asgi: AsgiSide) -> asyncio.Protocol:
        """For a new connection of a client."""
        ...

    def is_next(self, data: bytes) -> bool:
        """Whether a request that begins with `data` is the lane's, or may be: too little has come to tell."""
        ...


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The role's main decides what a signal means.
        yield


class _Side:
    """Both sides of one server: its connections are the lane's or the app's, and share its limits."""

    def __init__(self, lane: RawHandler | None, limits: HttpLimits, clients: Clients) -> None:
        self._lane = lane
        self.limits = limits
        self.clients = clients
        self.options: dict[str, Any] = {}

    def connect(self, **options: Any) -> asyncio.Protocol:
        self.options = options
        return AppConnection(self) if self._lane is None else self._lane.connect(self)

    def enter(self, connection: RawConnection) -> None:
        self.options["server_state"].connections.add(connection)

    def leave(self, connection: RawConnection) -> None:
        self.options["server_state"].connections.discard(connection)

    def take(self, client: Connected, data: bytes, take_back: TakeBack) -> None:
        assert self._lane is not None
        connection = AppConnection(self)
        connection.connected = client
        connection.is_next = self._lane.is_next
        connection.take_back = take_back
        client.transport.set_protocol(connection)
        connection.connection_made(client.transport)
        connection.data_received(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """How a peer of a WebSocket is found out that left without a word."""

    every_s: float = 30.0
    answered_within_s: float = 60.0


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_stop: Callable[[], None] = lambda: None,
    websockets: bool = False,
    pings: Pings = Pings(),  # noqa: B008  it is frozen
    lane: RawHandler | None = None,
    limits: HttpLimits | None = None,
    is_proxy: Callable[[str], bool] = lambda _address: False,
) -> None:
    """`on_stop` is told first when this is cancelled, so that endless responses can end. `is_proxy`: whether an address
    speaks for many clients."""
    limits = limits or default_limits()
    clients = Clients(limits, is_proxy=is_proxy)
    config = uvicorn.Config(
        app,
        http=_Side(lane, limits, clients).connect,  # type: ignore[arg-type]  # uvicorn only calls it
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=64 * 1024,
        ws_ping_interval=pings.every_s,
        ws_ping_timeout=pings.answered_within_s,
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_keep_alive=round(limits.idle_s),
        timeout_graceful_shutdown=STOP_WITHIN_S,
        server_header=False,
        proxy_headers=False,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    ticking = asyncio.ensure_future(clients.tick_for_ever())
    try:
        await asyncio.shield(serving)
    finally:
        on_stop()
        server.should_exit = True
        await asyncio.wait({serving}, timeout=STOP_WITHIN_S + 2)
        serving.cancel()
        ticking.cancel()


def default_limits(*, connections: int | None = None, connections_per_address: int | None = None) -> HttpLimits:
    """As many connections as this process has descriptors for, unless told otherwise, and half of them for one
    address."""
    possible = connections_within(descriptor_limit())
    most = possible if connections is None else min(connections, possible)
    return HttpLimits(connections=most, connections_per_address=connections_per_address or max(8, most // 2))
