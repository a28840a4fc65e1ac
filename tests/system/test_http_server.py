"""The HTTP server's own promises, over real sockets."""

import asyncio
import base64
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from corral.system.http_server import Pings, serve_http
from harness.waiting import until

PINGS = Pings(every_s=0.1, answered_within_s=1.0)


@dataclass
class Followed:
    """A server whose WebSockets say nothing and wait until their peer is gone."""

    port: int
    open: set[str] = field(default_factory=set)

    async def wait(self, peer: WebSocket) -> None:
        await peer.accept()
        name = peer.query_params["name"]
        self.open.add(name)
        while (await peer.receive())["type"] != "websocket.disconnect":
            pass
        self.open.discard(name)


@asynccontextmanager
async def following(pings: Pings) -> AsyncIterator[Followed]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        followed = Followed(listener.getsockname()[1])
        app = Starlette(routes=[WebSocketRoute("/ws", followed.wait)])
        serving = asyncio.ensure_future(serve_http(app, listener, websockets=True, pings=pings))
        yield followed
        serving.cancel()
        await asyncio.wait({serving})


async def open_and_fall_silent(port: int) -> asyncio.StreamWriter:
    """A peer that answers no ping: its machine is gone, and nothing ever tells."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    head = ("GET /ws?name=dead HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket")
    more = ("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", "")
    writer.write("\r\n".join((*head, *more)).encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return writer


async def test_a_peer_that_answers_no_ping_is_let_go_and_one_that_does_stays() -> None:
    async with following(PINGS) as followed, connect(f"ws://127.0.0.1:{followed.port}/ws?name=alive") as alive:
        dead = await open_and_fall_silent(followed.port)
        await until(lambda: followed.open == {"alive", "dead"}, "both are followed")
        await until(lambda: followed.open == {"alive"}, "the dead one is let go")
        assert await alive.ping() is not None
        dead.close()


async def test_without_a_ping_in_between_nobody_is_let_go() -> None:
    async with following(Pings(every_s=600)) as followed:
        dead = await open_and_fall_silent(followed.port)
        await until(lambda: followed.open == {"dead"}, "it is followed")
        async with connect(f"ws://127.0.0.1:{followed.port}/ws?name=alive"):
            await until(lambda: "alive" in followed.open, "another one comes")
        await until(lambda: followed.open == {"dead"}, "and leaves in good order")
        dead.close()
