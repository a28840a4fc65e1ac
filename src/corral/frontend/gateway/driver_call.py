"""Runs a driver as an upstream call: its answer reaches the request as the bytes of a replica would."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec

import structlog

from corral.core.errors import CorralError, InvalidInput, OutcomeUnknown, Unavailable
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.drivers import Driver, DriverRequest
from corral.frontend.gateway.error_responses import error_response_of
from corral.frontend.gateway.openai import OPENAI
from corral.frontend.gateway.unsupported_endpoint import unsupported
from corral.frontend.gateway.upstream.calls import ChunkRelay, Failure, FailureKind, ResponseSink
from corral.system.grpc_channel import BackendCannot

log = structlog.get_logger()
P = ParamSpec("P")


class DriverCall:
    """Both the call that the request holds and the `ResponseWriter` that the driver writes to."""

    def __init__(
        self,
        sink: ResponseSink,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        driver: Driver,
        request: DriverRequest,
        replica: RouteReplica,
    ) -> None:
        self._sink, self._request = sink, request
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._started = False
        self._over = False
        self.tokens: tuple[int, int] | None = None
        self._task = spawn(self._run(driver, request, replica))

    async def _run(self, driver: Driver, request: DriverRequest, replica: RouteReplica) -> None:
        try:
            await driver.handle(request, replica, self)
        except Unavailable as error:
            self._fail(str(error), FailureKind.UNREACHABLE)
        except OutcomeUnknown as error:
            self._fail(str(error))
        except CorralError as error:
            self._reject(error)
        except Exception as error:  # the client gets an answer, also after a bug
            log.exception("driver.crashed", replica=replica.id, model=request.model)
            self._fail(f"the {replica.protocol} driver crashed ({type(error).__name__})")
        else:
            if not self._over:
                self._over = True
                if self._started:
                    self._tell(self._sink.on_data, b"", True)
                else:
                    self._tell(self._sink.on_failure, Failure(FailureKind.BROKEN, "it sent no answer"))

    def _tell(self, step: Callable[P, None], *args: P.args, **more: P.kwargs) -> None:
        """Calls the sink."""
        try:
            step(*args, **more)
        except Exception as error:  # noqa: BLE001  the sink logs it
            self._over = True
            self._sink.on_crash(error)

    def _fail(self, text: str, kind: FailureKind = FailureKind.BROKEN) -> None:
        if not self._over:
            self._over = True
            self._tell(self._sink.on_failure, Failure(kind, text))

    def _reject(self, error: CorralError) -> None:
        """The client's mistake, or an error that every replica would return: it is answered, not retried."""
        if self._started:
            self._fail(str(error))
        elif not self._over:
            self._over = True
            cannot = isinstance(error, BackendCannot)
            response = unsupported(self._request.model, self._request.path) if cannot else error_response_of(error)
            head = {b"content-type": b"application/json"}
            self._tell(self._sink.on_answer, response.status, head, OPENAI.error_body(response), True)

    def cancel(self) -> None:
        self._over = True
        self._task.cancel()

    def pause(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def relay_chunks(self, relay: ChunkRelay) -> None:
        """Does nothing: a driver's data is not in HTTP's chunked coding."""

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        if self._started:
            raise InvalidInput("the answer has already been started")
        self._started = True
        if not self._over:
            head = {name.encode(): value.encode() for name, value in headers.items()}
            self._tell(self._sink.on_answer, status, head, b"", False)

    async def write(self, data: bytes) -> None:
        await self._flowing.wait()
        if data and not self._over:
            self._tell(self._sink.on_data, data, False)

    def count_tokens(self, *, prompt: int, completion: int) -> None:
        self.tokens = (prompt, completion)
