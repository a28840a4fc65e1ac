"""Readiness of processes: network probes, and the wait until a process is ready and listens on its own port."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Protocol

from corral.core.processes.process import ProcessReadiness
from corral.worker.processes.machine_port import Listener, Process

_ANSWER_WITHIN_S = 2.0
_STATUS_LINE_BYTES = 1024
_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 0.5


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

    async def check(self, target: ProbeTarget) -> ProbeAnswer: ...


class ListeningProbe:
    """Ready when the port accepts a connection. For backends without a health endpoint."""

    async def check(self, target: ProbeTarget) -> ProbeAnswer:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                _, writer = await asyncio.open_connection(target.host, target.port)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        except (OSError, TimeoutError) as problem:
            return ProbeAnswer(ready=False, detail=f"no connection: {_describe(problem)}")
        return ProbeAnswer(ready=True)


class NeverReady:
    """For processes that end when they are done."""

    async def check(self, target: ProbeTarget) -> ProbeAnswer:
        return ProbeAnswer(ready=False, detail="it has not ended")


@dataclass(frozen=True, slots=True)
class HttpProbe:
    readiness: ProcessReadiness

    async def check(self, target: ProbeTarget) -> ProbeAnswer:
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
        case "exits":
            return NeverReady()
        case "grpc":
            raise ValueError("a gRPC process needs a gRPC probe; pass one to the supervisor")


@dataclass(frozen=True, slots=True)
class BecameReady:
    pass


@dataclass(frozen=True, slots=True)
class NotReady:
    reason: str
    port_is_foreign: bool = False


async def await_ready(process: Process, probe: Probe, readiness: ProcessReadiness) -> BecameReady | NotReady:
    """Checks who listens before it sends the token, so that another program on the port does not receive it."""
    record = process.record
    target = ProbeTarget(host=record.spec.own_host, port=record.port, token=record.token)
    loop = asyncio.get_running_loop()
    began_s = active_s = looked_s = loop.time()
    look_every_s = min(1.0, readiness.quiet_within_s / 4)
    activity, wait_s, detail = (0.0, 0), _FIRST_WAIT_S, "nothing listens on its port"
    while True:
        match await process.find_listener():
            case Listener.FOREIGN:
                return NotReady(f"another program listens on its port {record.port}", port_is_foreign=True)
            case Listener.NOBODY if readiness.kind == "exits":
                detail = "it has not ended"
            case Listener.NOBODY:
                detail = f"nothing listens on port {record.port}"
            case listener:
                answer = await probe.check(target)
                if answer.ready and (listener is Listener.OURS or answer.proves_token):
                    return BecameReady()
                detail = answer.detail or f"cannot determine which program listens on port {record.port}"
        now_s = loop.time()
        if now_s - began_s >= readiness.within_s:
            return NotReady(f"not ready within {readiness.within_s:.0f} s: {detail}")
        if now_s - looked_s >= look_every_s:  # not in every iteration: it reads the whole process table
            looked_s = now_s
            if (seen := await process.activity()) != activity:
                activity, active_s = seen, now_s
            elif now_s - active_s >= readiness.quiet_within_s:
                return NotReady(f"no activity for {readiness.quiet_within_s:.0f} s, and not ready: {detail}")
        await asyncio.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)
