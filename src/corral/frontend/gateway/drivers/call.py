"""One request to a LocalAI backend."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig
from corral.core.replicas.routing import RouteReplica
from corral.formats.localai_proto import MODEL_METADATA_RESPONSE, MODEL_OPTIONS
from corral.formats.protobuf import BadMessage, Schema
from corral.frontend.gateway.drivers import DriverRequest, ResponseWriter
from corral.system.grpc_channel import BackendCannot, BackendFailed, GrpcChannel

ANSWER_WITHIN_S = 3600.0
MEDIA_MARK = "<__media__>"
SILENCE_S = 600.0


class BackendFiles(Protocol):
    """Files on the node of a replica. A backend reads and writes them by path."""

    async def put(self, node_id: str, data: bytes, *, suffix: str) -> str:
        """Stores a file and returns its path."""
        ...

    async def make_output(self, node_id: str, *, suffix: str) -> str: ...

    async def fetch(self, node_id: str, path: str) -> bytes: ...

    async def drop(self, node_id: str, path: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCall:
    request: DriverRequest
    replica: RouteReplica
    send: ResponseWriter
    config: ModelConfig
    channel: GrpcChannel
    files: BackendFiles | None
    now_s: int
    """Wall time, for `created`."""
    draw: Callable[[], float]
    make_id: Callable[[], str]

    async def unary(self, method: str, request: Schema, values: Mapping[str, Any], reply: Schema) -> dict[str, Any]:
        data = await self.channel.unary(method, _encoded(request, values), within_s=ANSWER_WITHIN_S)
        return _decoded(method, reply, data)

    async def media_mark(self) -> str:
        """The placeholder for an image, video or audio in a prompt. Most backends use the default."""
        try:
            metadata = await self.unary(
                "ModelMetadata", MODEL_OPTIONS, {"Model": self.config.model}, MODEL_METADATA_RESPONSE
            )
        except BackendCannot:
            return MEDIA_MARK
        return metadata.get("media_marker") or MEDIA_MARK

    async def follow(
        self, method: str, request: Schema, values: Mapping[str, Any], reply: Schema
    ) -> AsyncGenerator[dict[str, Any], None]:
        async with aclosing(self.channel.stream(method, _encoded(request, values), silence_s=SILENCE_S)) as replies:
            async for data in replies:
                yield _decoded(method, reply, data)

    async def answer(self, value: Any) -> None:
        await self.answer_bytes(msgspec.json.encode(value), "application/json")

    async def answer_bytes(self, data: bytes, content_type: str) -> None:
        self.send.start(200, {"content-type": content_type, "content-length": str(len(data))})
        await self.send.write(data)

    def start_stream(self) -> None:
        self.send.start(200, {"content-type": "text/event-stream", "cache-control": "no-cache"})

    async def send_event(self, value: Any) -> None:
        await self.send.write(b"data: " + msgspec.json.encode(value) + b"\n\n")

    async def end_stream(self) -> None:
        await self.send.write(b"data: [DONE]\n\n")

    def named(self, given: str) -> str:
        """The model's name as the client wrote it, which OpenAI clients expect in the answer."""
        return given or self.request.model

    @asynccontextmanager
    async def input_file(self, data: bytes, *, suffix: str) -> AsyncGenerator[str, None]:
        """The path of a file at the backend. The file exists as long as the block."""
        files, node_id = self.need_files(), self.replica.node_id
        path = await files.put(node_id, data, suffix=suffix)
        try:
            yield path
        finally:
            await files.drop(node_id, path)

    @asynccontextmanager
    async def output_file(self, *, suffix: str) -> AsyncGenerator[str, None]:
        files, node_id = self.need_files(), self.replica.node_id
        path = await files.make_output(node_id, suffix=suffix)
        try:
            yield path
        finally:
            await files.drop(node_id, path)

    def need_files(self) -> BackendFiles:
        if self.files is None:
            raise InvalidInput("this frontend cannot send files to the replica's node")
        return self.files


def _encoded(kind: Schema, values: Mapping[str, Any]) -> bytes:
    try:
        return kind.encode(values)
    except BadMessage as error:
        raise InvalidInput(f"invalid request: {error}") from error


def _decoded(method: str, kind: Schema, data: bytes) -> dict[str, Any]:
    try:
        return kind.decode(data)
    except BadMessage as error:
        raise BackendFailed(f"the backend's reply to {method} is invalid: {error}") from error
