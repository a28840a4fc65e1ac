"""Waits until a process is ready and is the one that listens on its port."""

import asyncio
from dataclasses import dataclass

from corral.core.processes.process import ProcessReadiness
from corral.worker.processes.machine_port import Listener, Process
from corral.worker.processes.probes import Probe, ProbeTarget

_FIRST_WAIT_S = 0.02
_LONGEST_WAIT_S = 0.5


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
            case Listener.NOBODY:
                detail = f"nothing listens on port {record.port}"
            case listener:
                answer = await probe.ask(target)
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
