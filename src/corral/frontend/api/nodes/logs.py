"""`/api/nodes/{id}/backend-logs`: the output of a node's backend processes, read from its worker."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from corral.core.errors import CorralError
from corral.core.processes.log_lines import Stream
from corral.frontend.http.json_response import MsgspecJson
from corral.store.stores import Stores
from corral.system.worker_logs import WorkerLogs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLineView:
    """A line of a log, as the worker sends it."""

    timestamp: str
    stream: Stream
    text: str


def log_routes(stores: Stores, logs: WorkerLogs) -> APIRouter:
    router = APIRouter(prefix="/api/nodes/{node_id}/backend-logs", tags=["nodes"])

    @router.get("", response_model=list[str])
    async def list_logs(node_id: str) -> Response:
        """Lists the processes that have a log, as `model#replica`."""
        node = await stores.nodes.read_one(node_id)
        return MsgspecJson(await logs.read_keys(node.id))

    @router.get("/{key:path}/follow", response_class=StreamingResponse)
    async def follow_log(node_id: str, key: str) -> StreamingResponse:
        """Follows a log as server-sent events: `{"type": "initial", "lines": [...]}`, then
        `{"type": "line", "line": {...}}` for each line. If the worker cannot be reached, the stream ends with
        `{"type": "error", "message": ...}`."""
        node = await stores.nodes.read_one(node_id)
        return StreamingResponse(
            _events(logs.follow(node.id, key)), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @router.get("/{key:path}", response_model=list[LogLineView])
    async def read_log(node_id: str, key: str) -> Response:
        """Shows the last lines of one process, or of all replicas of a model."""
        node = await stores.nodes.read_one(node_id)
        return MsgspecJson(await logs.read(node.id, key))

    return router


async def _events(messages: AsyncIterator[str]) -> AsyncIterator[bytes]:
    # Immediately, so that a client that follows a silent process knows that the stream is open.
    yield b": open\n\n"
    try:
        async for message in messages:
            yield b"data: %s\n\n" % message.replace("\n", " ").encode()
    except CorralError as error:
        yield b"data: %s\n\n" % bytes(MsgspecJson({"type": "error", "message": str(error)}).body)
