"""Backends that serve on after their worker was stopped: which they are, and how they are ended without a worker."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from corral.core.processes.process import ProcessKey, StopFailed, Stuck
from corral.worker.processes.machine_port import Process, Processes
from corral.worker.processes.records import Records, is_still, read_boot_id

GRACE_S = 10.0
WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Leftover:
    key: ProcessKey
    backend: str
    pid: int
    port: int


def find_leftovers(state: Path) -> list[Leftover]:
    """Blocking, and changes nothing. Alive by the kernel's word; a worker that runs may be in charge of them."""
    found = []
    for directory in Records(state / "processes").all():
        record, started = directory.read(), directory.read_started()
        if record is None or started is None or record.boot_id != read_boot_id():
            continue
        if is_still(started.main_pid, started.main_ticks):
            found.append(Leftover(record.spec.key, record.spec.backend, started.main_pid, record.port))
    return found


async def stop_leftovers(processes: Processes) -> list[ProcessKey]:
    """All of them at once. Answers which were alive; raises StopFailed for the first that the kernel holds."""
    found = await processes.survivors()
    alive = [process.record.spec.key for process in found if process.is_alive()]
    await asyncio.gather(*(_stop(process) for process in found))
    return alive


async def _stop(process: Process) -> None:
    await process.update(replace(process.record, wanted="stopped", reason="an administrator ended it"))
    left = await process.stop_tree(grace_s=GRACE_S, within_s=WITHIN_S)
    if left:
        raise StopFailed(process.record.spec.key, Stuck(left), within_s=WITHIN_S)
    await process.forget()


def tell_leftovers(keys: Iterable[str]) -> str:
    names = sorted(keys)
    what = "1 backend" if len(names) == 1 else f"{len(names)} backends"
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"{what} ({shown})"
