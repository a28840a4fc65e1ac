"""Serves an ASGI app on a socket that already listens, until cancelled.

A *raw handler* may answer requests before they reach the app. It gets every new connection and hands over those whose
next request is not its own. The app's side returns a connection when the next request is the raw handler's again.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp

from corral.system.descriptors import descriptor_limit
from corral.system.http_app import AppConnection, TakeBack
from corral.system.http_clients import ClientSlot, ClientSlots
from corral.system.http_limits import HttpLimits, connections_within

STOP_WITHIN_S = 3


class AsgiServer(Protocol):
    """The server, as the connections of a raw handler use it."""

    limits: HttpLimits
    clients: ClientSlots

    def enter(self, connection: "RawConnection") -> None:
        """Registers a connection. The server waits for it when it stops."""
        ...

    def leave(self, connection: "RawConnection") -> None: ...

    def take(self, client: ClientSlot, data: bytes, take_back: TakeBack) -> None:
        """Gives the connection to the app, whose request begins with `data`. `take_back` returns it."""
        ...


class RawConnection(Protocol):
    def shutdown(self) -> None: ...


class RawHandler(Protocol):
    def connect(self, asgi: AsgiServer) -> asyncio.Protocol:
        """The protocol for a new connection of a client."""
        ...

    def is_next(self, data: bytes) -> bool:
        """Whether a request that begins with `data` is the raw handler's, or may be if `data` is too short to tell."""
        ...


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The role's main function handles signals.
        yield


class _HttpServer:
    """One server, whose connections belong to the raw handler or the app and share its limits."""

    def __init__(self, raw_handler: RawHandler | None, limits: HttpLimits, clients: ClientSlots) -> None:
        self._raw = raw_handler
        self.limits = limits
        self.clients = clients
        self.options: dict[str, Any] = {}

    def connect(self, **options: Any) -> asyncio.Protocol:
        self.options = options
        return AppConnection(self) if self._raw is None else self._raw.connect(self)

    def enter(self, connection: RawConnection) -> None:
        self.options["server_state"].connections.add(connection)

    def leave(self, connection: RawConnection) -> None:
        self.options["server_state"].connections.discard(connection)

    def take(self, client: ClientSlot, data: bytes, take_back: TakeBack) -> None:
        assert self._raw is not None
        connection = AppConnection(self)
        connection.connected = client
        connection.is_next = self._raw.is_next
        connection.take_back = take_back
        client.transport.set_protocol(connection)
        connection.connection_made(client.transport)
        connection.data_received(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """Pings that detect a lost peer of a WebSocket."""

    every_s: float = 30.0
    answered_within_s: float = 60.0


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    *,
    drain: Callable[[], Awaitable[None]] | None = None,
    on_stop: Callable[[], None] = lambda: None,
    websockets: bool = False,
    pings: Pings = Pings(),  # noqa: B008  it is frozen
    raw_handler: RawHandler | None = None,
    limits: HttpLimits | None = None,
    is_proxy: Callable[[str], bool] = lambda _address: False,
) -> None:
    """When this is cancelled, it first awaits `drain`, while it still accepts connections. Then it calls `on_stop`, so
    that endless responses can end. `is_proxy`: whether many clients share an address."""
    limits = limits or default_limits()
    clients = ClientSlots(limits, is_proxy=is_proxy)
    config = uvicorn.Config(
        app,
        http=_HttpServer(raw_handler, limits, clients).connect,  # type: ignore[arg-type]  # uvicorn only calls it
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
    ticking = asyncio.ensure_future(clients.keep_ticking())
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        if drain is not None:
            await drain()
        raise
    finally:
        on_stop()
        server.should_exit = True
        await asyncio.wait({serving}, timeout=STOP_WITHIN_S + 2)
        serving.cancel()
        ticking.cancel()


def default_limits(*, connections: int | None = None, connections_per_address: int | None = None) -> HttpLimits:
    """By default, as many connections as this process has descriptors for, and half of them for one address."""
    possible = connections_within(descriptor_limit())
    most = possible if connections is None else min(connections, possible)
    return HttpLimits(connections=most, connections_per_address=connections_per_address or max(8, most // 2))
