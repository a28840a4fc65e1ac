"""Serves an ASGI app on a socket that already listens, until cancelled."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

STOP_WITHIN_S = 3


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The role's main decides what a signal means.
        yield


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_stop: Callable[[], None] = lambda: None,
    websockets: bool = False,
) -> None:
    """`on_stop` is told first when this is cancelled, so that endless responses can end."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=64 * 1024,
        ws_ping_interval=30.0,
        ws_ping_timeout=60.0,
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
