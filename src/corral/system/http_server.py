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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

STOP_WITHIN_S = 3

TakeBack = Callable[[asyncio.Transport, bytes], None]


class AsgiSide(Protocol):
    """What a lane's connection sees of the server."""

    def enter(self, connection: "LaneConnection") -> None:
        """The server waits for it when it stops."""
        ...

    def leave(self, connection: "LaneConnection") -> None: ...

    def take(self, transport: asyncio.Transport, data: bytes, take_back: TakeBack) -> None:
        """The app answers what begins with `data`."""
        ...


class LaneConnection(Protocol):
    def shutdown(self) -> None: ...


class Lane(Protocol):
    def connect(self, asgi: AsgiSide) -> asyncio.Protocol:
        """For a new connection of a client."""
        ...

    def is_next(self, data: bytes) -> bool:
        """Whether a request that begins with `data` is the lane's."""
        ...


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The role's main decides what a signal means.
        yield


class _AppConnection(HttpToolsProtocol):
    """Between two requests it looks whether the next one is the lane's."""

    lane: Lane
    take_back: TakeBack
    _between = True

    def data_received(self, data: bytes) -> None:
        if self._between and self._is_answered() and self.lane.is_next(data):
            self._unset_keepalive_if_required()
            self.connections.discard(self)
            self.take_back(self.transport, data)
        else:
            super().data_received(data)

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def on_message_begin(self) -> None:
        self._between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._between = True
        super().on_message_complete()


class _Side:
    def __init__(self, lane: Lane, options: dict[str, Any]) -> None:
        self._lane = lane
        self._options = options
        self._connections = options["server_state"].connections

    def enter(self, connection: LaneConnection) -> None:
        self._connections.add(connection)

    def leave(self, connection: LaneConnection) -> None:
        self._connections.discard(connection)

    def take(self, transport: asyncio.Transport, data: bytes, take_back: TakeBack) -> None:
        connection = _AppConnection(**self._options)
        connection.lane = self._lane
        connection.take_back = take_back
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)


def _connections_for(lane: Lane) -> Callable[..., asyncio.Protocol]:
    def connect(**options: Any) -> asyncio.Protocol:
        return lane.connect(_Side(lane, options))

    return connect


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
    lane: Lane | None = None,
) -> None:
    """`on_stop` is told first when this is cancelled, so that endless responses can end."""
    config = uvicorn.Config(
        app,
        http="httptools" if lane is None else _connections_for(lane),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=64 * 1024,
        ws_ping_interval=pings.every_s,
        ws_ping_timeout=pings.answered_within_s,
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_WITHIN_S,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        on_stop()
        server.should_exit = True
        await asyncio.wait({serving}, timeout=STOP_WITHIN_S + 2)
        serving.cancel()
