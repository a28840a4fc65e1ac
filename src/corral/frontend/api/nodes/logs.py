"""`/api/nodes/{id}/backend-logs`: what the processes of a node write, fetched from its worker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

from fastapi import APIRouter, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

from corral.core.errors import CorralError
from corral.frontend.http.errors import corral_error_response
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores


class Logs(Protocol):
    async def read_keys(self, node_id: str) -> Any: ...

    async def read(self, node_id: str, key: str) -> Any: ...

    def follow(self, node_id: str, key: str) -> AsyncIterator[str]: ...


def log_routes(stores: Stores, logs: Logs) -> APIRouter:
    router = APIRouter(prefix="/api/nodes/{node_id}/backend-logs", tags=["nodes"])

    @router.get("")
    async def list_logs(node_id: str) -> Response:
        """The processes that wrote something: `model#replica`."""
        node = await stores.nodes.read_one(node_id)
        return MsgspecJson(await logs.read_keys(node.id))

    @router.get("/{key:path}/follow", response_class=StreamingResponse)
    async def follow_log(node_id: str, key: str) -> StreamingResponse:
        """Server-sent events: `{"type": "initial", "lines": [...]}`, then `{"type": "line", "line": {...}}` for each
        line; one that the worker could not be asked ends with `{"type": "error", "message": ...}`."""
        node = await stores.nodes.read_one(node_id)
        return StreamingResponse(
            _events(logs.follow(node.id, key)), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @router.get("/{key:path}")
    async def read_log(node_id: str, key: str) -> Response:
        """The last lines of one process, or of all replicas of a model."""
        node = await stores.nodes.read_one(node_id)
        return MsgspecJson(await logs.read(node.id, key))

    return router


def log_socket_routes(stores: Stores, logs: Logs) -> APIRouter:
    router = APIRouter(tags=["nodes"])

    @router.websocket("/ws/nodes/{node_id}/backend-logs/{key:path}")
    async def follow_log(socket: WebSocket, node_id: str, key: str) -> None:
        """The same messages, in the form in which LocalAI's pages take them."""
        try:
            node = await stores.nodes.read_one(node_id)
        except CorralError as error:
            await socket.send_denial_response(corral_error_response(socket.url.path, error))
            return
        await socket.accept()
        async with asyncio.TaskGroup() as tasks:
            parts = [
                tasks.create_task(_send_all(socket, logs.follow(node.id, key))),
                tasks.create_task(_until_gone(socket)),
            ]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()

    return router


async def _send_all(socket: WebSocket, messages: AsyncIterator[str]) -> None:
    try:
        try:
            async for message in messages:
                await socket.send_text(message)
            await socket.close()
        except CorralError as error:
            await socket.send_text(bytes(MsgspecJson({"type": "error", "message": str(error)}).body).decode())
            await socket.close(code=1011, reason="the worker cannot be followed")
    except WebSocketDisconnect:
        return


async def _until_gone(socket: WebSocket) -> None:
    """What a reader says is of no use here; that it leaves is."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _events(messages: AsyncIterator[str]) -> AsyncIterator[bytes]:
    # At once, so that who follows a process that says nothing knows that the line is open.
    yield b": open\n\n"
    try:
        async for message in messages:
            yield b"data: %s\n\n" % message.replace("\n", " ").encode()
    except CorralError as error:
        yield b"data: %s\n\n" % bytes(MsgspecJson({"type": "error", "message": str(error)}).body)
