"""Is a process able to work? A probe asks over the network; who answered is found out separately."""

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
    proves_token: bool = False  # right token accepted and wrong one refused: nobody else could have answered so
    detail: str = ""


class Probe(Protocol):
    """Never raises for what the other side does, and is done within a few seconds."""

    async def ask(self, target: ProbeTarget) -> ProbeAnswer: ...


class ListeningProbe:
    """Ready is whoever accepts a connection. For backends with nothing better to ask."""

    async def ask(self, target: ProbeTarget) -> ProbeAnswer:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                _, writer = await asyncio.open_connection(target.host, target.port)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        except (OSError, TimeoutError) as problem:
            return ProbeAnswer(ready=False, detail=f"no connection: {_words(problem)}")
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
            return ProbeAnswer(ready=False, detail=f"{self.readiness.path}: {_words(problem)}")
        if refused in (401, 403):
            return ProbeAnswer(ready=True, proves_token=True)
        return ProbeAnswer(ready=False, detail=f"{self.readiness.path} answers {refused} to a wrong token")


def _words(problem: Exception) -> str:
    return str(problem) or "no answer in time"


async def _get_status(target: ProbeTarget, path: str, token: str) -> int:
    """We close, not the server: who closes first keeps the port busy for a minute, and the port is the server's."""
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
        words = (await reader.readline()).split()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError("the answer is not HTTP")
    return int(words[1])


def local_probe(readiness: ProcessReadiness) -> Probe:
    """For the protocols that need no library of their own. The caller brings the one for gRPC."""
    match readiness.kind:
        case "listening":
            return ListeningProbe()
        case "http":
            return HttpProbe(readiness)
        case "grpc":
            raise ValueError("a gRPC process needs a gRPC probe; hand one to the supervisor")
