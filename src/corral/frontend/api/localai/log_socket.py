"""`/ws/nodes/{id}/backend-logs`: logs over a WebSocket, as LocalAI's pages read them."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from corral.core.errors import CorralError
from corral.frontend.http.errors import corral_error_response
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores
from corral.system.worker_logs import WorkerLogs


def log_socket_routes(stores: Stores, logs: WorkerLogs) -> APIRouter:
    router = APIRouter(tags=["localai"])

    @router.websocket("/ws/nodes/{node_id}/backend-logs/{key:path}")
    async def follow_log(socket: WebSocket, node_id: str, key: str) -> None:
        """Sends the messages of `/api/nodes/{id}/backend-logs/{key}/follow`."""
        try:
            node = await stores.nodes.read_one(node_id)
        except CorralError as error:
            await socket.send_denial_response(corral_error_response(socket.url.path, error))
            return
        await socket.accept()
        async with asyncio.TaskGroup() as tasks:
            ends = [
                tasks.create_task(_send_all(socket, logs.follow(node.id, key))),
                tasks.create_task(_wait_for_disconnect(socket)),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in ends:
                task.cancel()

    return router


async def _send_all(socket: WebSocket, messages: AsyncIterator[str]) -> None:
    try:
        try:
            async for message in messages:
                await socket.send_text(message)
            await socket.close()
        except CorralError as error:
            await socket.send_text(bytes(MsgspecJson({"type": "error", "message": str(error)}).body).decode())
            await socket.close(code=1011, reason="the worker's log cannot be read")
    except WebSocketDisconnect:
        return


async def _wait_for_disconnect(socket: WebSocket) -> None:
    """Ignores what the client sends."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
