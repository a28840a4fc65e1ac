"""The driver for LocalAI's gRPC backends: OpenAI's requests in, `backend.proto` out, and back."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from corral.core.errors import NotFound, Unavailable
from corral.core.models.config import ModelConfig
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.drivers import LaneRequest, LaneSend
from corral.frontend.gateway.drivers.call import BackendCall, BackendFiles
from corral.frontend.gateway.drivers.media import draw_images, speak, transcribe
from corral.frontend.gateway.drivers.talking import chat, complete
from corral.frontend.gateway.drivers.vectors import embed, rerank
from corral.system import Clock, Ids
from corral.system.grpc_channel import BackendCannot, GrpcChannel, WrongProcess

log = structlog.get_logger()

HANDLERS: Mapping[str, Callable[[BackendCall], Awaitable[None]]] = {
    "/v1/chat/completions": chat,
    "/v1/completions": complete,
    "/v1/embeddings": embed,
    "/v1/rerank": rerank,
    "/v1/audio/transcriptions": transcribe,
    "/v1/audio/translations": transcribe,
    "/v1/audio/speech": speak,
    "/v1/images/generations": draw_images,
}
CONFIGS_MOST = 512
CHANNELS_MOST = 1024


class ModelReader(Protocol):
    async def read_config(self, name: str, revision: str) -> ModelConfig: ...


class LocalAiGrpc:
    def __init__(
        self,
        models: ModelReader,
        *,
        clock: Clock,
        ids: Ids,
        shared_token: str = "",
        files: BackendFiles | None = None,
        on_wrong_process: Callable[[RouteReplica, str], None] | None = None,
    ) -> None:
        """`shared_token`: for processes without one of their own, which LocalAI's workers start.

        `on_wrong_process`: told when a replica turned out to be another process, or to have lost its model."""
        self._models = models
        self._clock = clock
        self._ids = ids
        self._shared_token = shared_token
        self._files = files
        self._on_wrong_process = on_wrong_process
        self._configs: OrderedDict[str, ModelConfig] = OrderedDict()
        self._channels: OrderedDict[str, _Lasting] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def handle(self, request: LaneRequest, replica: RouteReplica, send: LaneSend) -> None:
        handler = HANDLERS.get(request.path)
        if handler is None:
            raise BackendCannot(f"{request.path} is not possible with {request.model!r}, whose backend speaks gRPC")
        config = await self._config(request.model, replica.revision)
        lasting = self._channel(replica)
        call = BackendCall(
            request=request,
            replica=replica,
            send=send,
            config=config,
            channel=lasting.channel,
            files=self._files,
            now_s=self._clock.now_ms() // 1000,
            draw=self._ids.draw,
            make_id=self._ids.uuid,
        )
        lasting.open += 1
        try:
            await handler(call)
        except WrongProcess as error:
            log.warning("replica.wrong_process", replica=replica.id, model=request.model, reason=str(error))
            if self._on_wrong_process is not None:
                self._on_wrong_process(replica, str(error))
            raise
        finally:
            lasting.open -= 1
            if lasting.retired and not lasting.open:
                self._close(lasting)

    async def close(self) -> None:
        for lasting in self._channels.values():
            await lasting.channel.close()
        self._channels.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _config(self, model: str, revision: str) -> ModelConfig:
        """From memory: that of the revision the replica was loaded from, which may not be the newest."""
        known = self._configs.get(revision)
        if known is not None:
            self._configs.move_to_end(revision)
            return known
        try:
            config = await self._models.read_config(model, revision)
        except NotFound as error:
            raise Unavailable(f"{model!r} was changed or deleted a moment ago") from error
        self._configs[revision] = config
        if len(self._configs) > CONFIGS_MOST:
            self._configs.popitem(last=False)
        return config

    def _channel(self, replica: RouteReplica) -> "_Lasting":
        """One for each process: a replica started anew gets a new one, and the old one goes when it is idle."""
        process = (replica.address, replica.token, replica.generation)
        lasting = self._channels.get(replica.id)
        if lasting is not None and lasting.process != process:
            self._retire(self._channels.pop(replica.id))
            lasting = None
        if lasting is None:
            lasting = _Lasting(GrpcChannel(replica.address, replica.token or self._shared_token), process)
            self._channels[replica.id] = lasting
            if len(self._channels) > CHANNELS_MOST:
                self._retire(self._channels.popitem(last=False)[1])
        self._channels.move_to_end(replica.id)
        return lasting

    def _retire(self, lasting: "_Lasting") -> None:
        lasting.retired = True
        if not lasting.open:
            self._close(lasting)

    def _close(self, lasting: "_Lasting") -> None:
        """Not awaited by the request that noticed; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(lasting.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Lasting:
    __slots__ = ("channel", "open", "process", "retired")

    def __init__(self, channel: GrpcChannel, process: tuple[str, str, int]) -> None:
        self.channel = channel
        self.process = process
        self.open = 0
        self.retired = False
