"""The two calls of a worker to LocalAI's gRPC backends: `Health` and `Free`. The frontend loads models.

Both requests are empty and only one field of each reply is used, so the bytes are handled without generated code.
grpcio is imported with the first backend that needs it, which saves memory on other workers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corral.core.errors import Unavailable
from corral.core.processes.process import ProcessSpec, ProcessView, Ready
from corral.worker.processes.readiness import Probe, ProbeAnswer, ProbeTarget, local_probe

if TYPE_CHECKING:
    import grpc

TOKEN_VARIABLE = "LOCALAI_GRPC_AUTH_TOKEN"
HEALTHY = b"\x0a\x02OK"
"""Field 1 (bytes) of Reply is `OK`; Health sets no other field."""
_SERVICE = "/backend.Backend/"
_ANSWER_WITHIN_S = 2.0
_FREE_WITHIN_S = 4.5


@dataclass(frozen=True, slots=True)
class GrpcProbe:
    token: str | None
    """The token shared by all processes of the fleet; None if each process has its own."""

    async def check(self, target: ProbeTarget) -> ProbeAnswer:
        import grpc

        token = target.token if self.token is None else self.token
        try:
            reply = await _call(target.host, target.port, "Health", token, within_s=_ANSWER_WITHIN_S)
        except grpc.aio.AioRpcError as problem:
            return ProbeAnswer(ready=False, detail=f"Health: {_describe(problem)}")
        if not reply.startswith(HEALTHY):
            return ProbeAnswer(ready=False, detail="the Health call did not return OK")
        try:
            await _call(target.host, target.port, "Health", f"not-{token[::-1]}", within_s=_ANSWER_WITHIN_S)
        except grpc.aio.AioRpcError as problem:
            return ProbeAnswer(ready=True, proves_token=problem.code() is grpc.StatusCode.UNAUTHENTICATED)
        return ProbeAnswer(ready=True)


def probe_of(spec: ProcessSpec) -> Probe:
    if spec.readiness.kind != "grpc":
        return local_probe(spec.readiness)
    return GrpcProbe(_shared_token(spec))


async def free_model(view: ProcessView) -> None:
    """Asks a gRPC backend to unload its model. Most cannot; only ending the process reliably frees memory."""
    if view.spec.readiness.kind != "grpc" or not isinstance(view.state, Ready):
        return
    import grpc

    shared = _shared_token(view.spec)
    token = view.state.token if shared is None else shared
    try:
        reply = await _call(view.spec.own_host, view.state.port, "Free", token, within_s=_FREE_WITHIN_S)
    except grpc.aio.AioRpcError as problem:
        raise Unavailable(f"cannot unload the model of process {view.key}: {_describe(problem)}") from None
    if b"\x10\x01" not in reply:  # field 2 of Result, `success`, is true
        raise Unavailable(f"cannot unload the model of process {view.key}: the backend rejected the request")


def _shared_token(spec: ProcessSpec) -> str | None:
    given = spec.environment.get(TOKEN_VARIABLE)
    return given if isinstance(given, str) else None


def _describe(problem: "grpc.aio.AioRpcError") -> str:
    return f"{problem.code().name}: {problem.details() or 'no details'}"


async def _call(host: str, port: int, method: str, token: str, *, within_s: float) -> bytes:
    """Uses one connection per call: a pooled one would apply the back-off of the port's previous owner."""
    import grpc

    options: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    named = f"[{host}]" if ":" in host else host
    async with grpc.aio.insecure_channel(f"{named}:{port}", options=options) as channel:
        call = channel.unary_unary(_SERVICE + method)
        reply: bytes = await call(b"", timeout=within_s, metadata=metadata)
        return reply
