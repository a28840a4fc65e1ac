"""Readiness probes over the network. Which process answers is checked separately."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Protocol

from corral.core.processes.process import ProcessReadiness

_ANSWER_WITHIN_S = 2.0
_STATUS_LINE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    host: str
    port: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    ready: bool
    proves_token: bool = False  # it accepted the right token and rejected a wrong one, so it is the right process
    detail: str = ""


class Probe(Protocol):
    """Does not raise for failures of the other side, and returns within a few seconds."""

    async def ask(self, target: ProbeTarget) -> ProbeAnswer: ...


class ListeningProbe:
    """Ready when the port accepts a connection. For backends without a health endpoint."""

    async def ask(self, target: ProbeTarget) -> ProbeAnswer:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                _, writer = await asyncio.open_connection(target.host, target.port)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        except (OSError, TimeoutError) as problem:
            return ProbeAnswer(ready=False, detail=f"no connection: {_describe(problem)}")
        return ProbeAnswer(ready=True)


@dataclass(frozen=True, slots=True)
class HttpProbe:
    readiness: ProcessReadiness

    async def ask(self, target: ProbeTarget) -> ProbeAnswer:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                status = await _get_status(target, self.readiness.path, target.token)
                if not 200 <= status < 300:
                    return ProbeAnswer(ready=False, detail=f"{self.readiness.path} answers {status}")
                if not self.readiness.refuses_wrong_token:
                    return ProbeAnswer(ready=True)
                refused = await _get_status(target, self.readiness.path, "not-" + target.token[::-1])
        except (OSError, TimeoutError, ValueError) as problem:
            return ProbeAnswer(ready=False, detail=f"{self.readiness.path}: {_describe(problem)}")
        if refused in (401, 403):
            return ProbeAnswer(ready=True, proves_token=True)
        return ProbeAnswer(ready=False, detail=f"{self.readiness.path} answers {refused} to a wrong token")


def _describe(problem: Exception) -> str:
    return str(problem) or "timed out"


async def _get_status(target: ProbeTarget, path: str, token: str) -> int:
    """Closes the connection before the server does: the side that closes first keeps its port in TIME_WAIT."""
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=_STATUS_LINE_BYTES)
    try:
        host = f"[{target.host}]" if ":" in target.host else target.host
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{target.port}",
            f"Authorization: Bearer {token}",
            "Accept: */*",
        )
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        await writer.drain()
        parts = (await reader.readline()).split()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        raise ValueError("the response is not HTTP")
    return int(parts[1])


def local_probe(readiness: ProcessReadiness) -> Probe:
    """The probe for protocols that need no library. The caller provides the one for gRPC."""
    match readiness.kind:
        case "listening":
            return ListeningProbe()
        case "http":
            return HttpProbe(readiness)
        case "grpc":
            raise ValueError("a gRPC process needs a gRPC probe; pass one to the supervisor")
