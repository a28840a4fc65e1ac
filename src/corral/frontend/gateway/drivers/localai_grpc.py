"""The driver for LocalAI's gRPC backends. It translates between OpenAI's API and `backend.proto`."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from corral.core.errors import NotFound, Unavailable
from corral.core.models.config import ModelConfig
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.drivers import DriverRequest, ResponseWriter
from corral.frontend.gateway.drivers.call import BackendCall, BackendFiles
from corral.frontend.gateway.drivers.chat import chat, complete
from corral.frontend.gateway.drivers.embeddings import embed, rerank
from corral.frontend.gateway.drivers.media import generate_images, synthesize_speech, transcribe
from corral.system import Clock, Ids
from corral.system.grpc_channel import BackendCannot, BackendGone, GrpcChannel, WrongProcess

log = structlog.get_logger()

HANDLERS: Mapping[str, Callable[[BackendCall], Awaitable[None]]] = {
    "/v1/chat/completions": chat,
    "/v1/completions": complete,
    "/v1/embeddings": embed,
    "/v1/rerank": rerank,
    "/v1/audio/transcriptions": transcribe,
    "/v1/audio/translations": transcribe,
    "/v1/audio/speech": synthesize_speech,
    "/v1/images/generations": generate_images,
}
CONFIGS_MAX = 512
CHANNELS_MAX = 1024


class ModelConfigReader(Protocol):
    async def read_config(self, name: str, revision: str) -> ModelConfig: ...


class LocalAiGrpc:
    def __init__(
        self,
        models: ModelConfigReader,
        *,
        clock: Clock,
        ids: Ids,
        shared_token: str = "",
        files: BackendFiles | None = None,
        on_wrong_process: Callable[[RouteReplica, str], None] | None = None,
        on_gone: Callable[[RouteReplica], None] | None = None,
    ) -> None:
        """`shared_token`: for processes without their own token, which LocalAI's workers start.

        `on_wrong_process`: called when a replica's address belongs to another process, or its model is not loaded.
        `on_gone`: called when a replica's process does not answer."""
        self._models = models
        self._clock = clock
        self._ids = ids
        self._shared_token = shared_token
        self._files = files
        self._on_wrong_process, self._on_gone = on_wrong_process, on_gone
        self._configs: OrderedDict[str, ModelConfig] = OrderedDict()
        self._channels: OrderedDict[str, _CachedChannel] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def handle(self, request: DriverRequest, replica: RouteReplica, send: ResponseWriter) -> None:
        handler = HANDLERS.get(request.path)
        if handler is None:
            raise BackendCannot(f"{request.path} is not supported by {request.model!r}, whose backend uses gRPC")
        config = await self._config(request.model, replica.revision)
        cached = self._channel(replica)
        call = BackendCall(
            request=request,
            replica=replica,
            send=send,
            config=config,
            channel=cached.channel,
            files=self._files,
            now_s=self._clock.now_ms() // 1000,
            draw=self._ids.draw,
            make_id=self._ids.uuid,
        )
        cached.open += 1
        try:
            await handler(call)
        except WrongProcess as error:
            log.warning("replica.wrong_process", replica=replica.id, model=request.model, reason=str(error))
            if self._on_wrong_process is not None:
                self._on_wrong_process(replica, str(error))
            raise
        except BackendGone:
            if self._on_gone is not None:
                self._on_gone(replica)
            raise
        finally:
            cached.open -= 1
            if cached.retired and not cached.open:
                self._close(cached)

    async def close(self) -> None:
        for cached in self._channels.values():
            await cached.channel.close()
        self._channels.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _config(self, model: str, revision: str) -> ModelConfig:
        """The configuration of the revision that the replica serves, which may not be the newest. It is cached."""
        known = self._configs.get(revision)
        if known is not None:
            self._configs.move_to_end(revision)
            return known
        try:
            config = await self._models.read_config(model, revision)
        except NotFound as error:
            raise Unavailable(f"{model!r} was just changed or deleted") from error
        self._configs[revision] = config
        if len(self._configs) > CONFIGS_MAX:
            self._configs.popitem(last=False)
        return config

    def _channel(self, replica: RouteReplica) -> "_CachedChannel":
        """The channel of a replica's process. A restarted replica gets a new one; the old one is closed when idle."""
        process = (replica.address, replica.token, replica.generation)
        cached = self._channels.get(replica.id)
        if cached is not None and cached.process != process:
            self._retire(self._channels.pop(replica.id))
            cached = None
        if cached is None:
            cached = _CachedChannel(GrpcChannel(replica.address, replica.token or self._shared_token), process)
            self._channels[replica.id] = cached
            if len(self._channels) > CHANNELS_MAX:
                self._retire(self._channels.popitem(last=False)[1])
        self._channels.move_to_end(replica.id)
        return cached

    def _retire(self, cached: "_CachedChannel") -> None:
        cached.retired = True
        if not cached.open:
            self._close(cached)

    def _close(self, cached: "_CachedChannel") -> None:
        """Closes in the background, so that no request waits for it. `close` waits for it."""
        task = asyncio.get_running_loop().create_task(cached.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _CachedChannel:
    __slots__ = ("channel", "open", "process", "retired")

    def __init__(self, channel: GrpcChannel, process: tuple[str, str, int]) -> None:
        self.channel = channel
        self.process = process
        self.open = 0
        self.retired = False
