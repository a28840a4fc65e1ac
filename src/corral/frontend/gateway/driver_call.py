"""Lets a driver look like a link: its replies reach the exchange as a replica's bytes would."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from corral.core.errors import CorralError, InvalidInput, OutcomeUnknown, Unavailable
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.answers import refusal_of
from corral.frontend.gateway.drivers import Driver, LaneRequest
from corral.frontend.gateway.unsupported_endpoint import lacking
from corral.frontend.gateway.upstream.calls import ChunkRelay, Failure, FailureKind, Sink
from corral.system.grpc_channel import BackendCannot

log = structlog.get_logger()


class DriverCall:
    """Both the call the exchange holds and the `LaneSend` the driver writes to."""

    def __init__(
        self,
        sink: Sink,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        driver: Driver,
        request: LaneRequest,
        replica: RouteReplica,
    ) -> None:
        self._sink, self._request = sink, request
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._started = False
        self._over = False
        self.tokens: tuple[int, int] | None = None
        self._task = spawn(self._run(driver, request, replica))

    async def _run(self, driver: Driver, request: LaneRequest, replica: RouteReplica) -> None:
        try:
            await driver.handle(request, replica, self)
        except Unavailable as error:
            self._fail(str(error), FailureKind.UNREACHABLE)
        except OutcomeUnknown as error:
            self._fail(str(error))
        except CorralError as error:
            self._refuse(error)
        except Exception as error:
            log.exception("driver.crashed", replica=replica.id, model=request.model)
            self._fail(f"the driver for {replica.protocol} failed ({type(error).__name__})")
        else:
            if not self._over:
                self._over = True
                if self._started:
                    self._sink.on_data(b"", True)
                else:
                    self._sink.on_failure(Failure(FailureKind.BROKEN, "it gave no answer"))

    def _fail(self, text: str, kind: FailureKind = FailureKind.BROKEN) -> None:
        if not self._over:
            self._over = True
            self._sink.on_failure(Failure(kind, text))

    def _refuse(self, error: CorralError) -> None:
        """The caller's mistake, or one that another replica would make too: answered, not tried again."""
        if self._started:
            self._fail(str(error))
        elif not self._over:
            self._over = True
            cannot = isinstance(error, BackendCannot)
            refusal = lacking(self._request.model, self._request.path) if cannot else refusal_of(error)
            self._sink.on_answer(refusal.status, {b"content-type": b"application/json"}, refusal.body(), True)

    def cancel(self) -> None:
        self._over = True
        self._task.cancel()

    def pause(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def relay_chunks(self, relay: ChunkRelay) -> None:
        """A driver's replies have no coding yet."""

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        if self._started:
            raise InvalidInput("the answer has been started already")
        self._started = True
        if not self._over:
            head = {name.encode(): value.encode() for name, value in headers.items()}
            self._sink.on_answer(status, head, b"", False)

    async def write(self, data: bytes) -> None:
        await self._flowing.wait()
        if data and not self._over:
            self._sink.on_data(data, False)

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        self.tokens = (prompt, completion)
