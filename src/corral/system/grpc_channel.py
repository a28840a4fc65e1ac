"""gRPC calls to LocalAI's backends: bytes in, bytes out, and errors by their meaning for a request.

grpcio is imported when the first backend needs it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from corral.core.errors import CorralError, InvalidInput, OutcomeUnknown, TimedOut, Unavailable
from corral.formats.localai_proto import MESSAGE_MOST_BYTES, MISMATCH, NOT_LOADED, SERVICE

if TYPE_CHECKING:
    import grpc


class BackendGone(Unavailable):
    """The process does not answer; another replica may."""

    code = "backend_gone"


class WrongProcess(Unavailable):
    """Another process answers, or the process lost its model. No more requests may go there."""

    code = "backend_replaced"


class BackendCannot(InvalidInput):
    """The backend does not implement the call."""

    code = "not_supported_by_backend"


class BackendFailed(CorralError):
    """The backend failed, with its own error text."""

    code = "backend_failed"


class BackendSilent(TimedOut):
    code = "backend_silent"


# Clients see these errors, and the address of a process is internal.
_ADDRESS = re.compile(r"ipv[46]:\S+:\s")
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MESSAGE_MOST_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_MOST_BYTES),
    # A pool shared with other channels would remember, and back off from, the port's last owner.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name: how long one attempt to connect may take, until the backend has sent something.
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


class GrpcChannel:
    """One persistent connection to one process. Every call sends the process's token."""

    def __init__(self, address: str, token: str) -> None:
        import grpc

        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)

    async def unary(self, method: str, request: bytes, *, within_s: float) -> bytes:
        import grpc

        call = self._channel.unary_unary(SERVICE + method)
        try:
            reply: bytes = await call(request, timeout=within_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._meaning(method, error.code(), error.details() or "") from None
        return reply

    async def stream(self, method: str, request: bytes, *, silence_s: float) -> AsyncGenerator[bytes, None]:
        """Yields the replies. Leaving the iteration cancels the call."""
        import grpc

        call = self._channel.unary_stream(SERVICE + method)(request, metadata=self._metadata)
        try:
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        reply = await call.read()
                except TimeoutError:
                    raise BackendSilent(f"the backend sent nothing for {silence_s:.0f} s during {method}") from None
                except grpc.aio.AioRpcError as error:
                    raise self._meaning(method, error.code(), error.details() or "") from None
                if reply is grpc.aio.EOF:
                    break
                yield reply
            code = await call.code()
            if code is not grpc.StatusCode.OK:
                raise self._meaning(method, code, await call.details() or "")
        finally:
            call.cancel()

    async def close(self) -> None:
        await self._channel.close(None)

    def _meaning(self, method: str, code: "grpc.StatusCode", details: str) -> CorralError:
        import grpc

        status = grpc.StatusCode
        details = _ADDRESS.sub("", details)
        text = f"{method}: {details or code.name}"
        if MISMATCH in details and code is status.NOT_FOUND:
            return WrongProcess(f"another model is served there. {text}")
        if code is status.FAILED_PRECONDITION or NOT_LOADED in details:
            return WrongProcess(f"the model is no longer loaded there. {text}")
        if code is status.UNAUTHENTICATED:
            return WrongProcess(f"another process has taken over the port. {text}")
        if code in (status.UNAVAILABLE, status.CANCELLED, status.ABORTED, status.RESOURCE_EXHAUSTED):
            return BackendGone(text)
        if code is status.DEADLINE_EXCEEDED:
            return BackendSilent(text)
        if code is status.UNIMPLEMENTED:
            return BackendCannot(f"the model's backend does not support this call ({method} is not implemented)")
        if code in (status.INVALID_ARGUMENT, status.OUT_OF_RANGE):
            return InvalidInput(f"the model's backend rejected the request: {details or code.name}")
        if code is status.DATA_LOSS:
            return OutcomeUnknown(text)
        return BackendFailed(text)
