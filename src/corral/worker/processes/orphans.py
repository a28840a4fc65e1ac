"""Lists and stops backends that continue to serve after their worker was stopped."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from corral.core.processes.process import DesiredRun, ProcessKey, StopFailed, Stuck
from corral.worker.processes.machine_port import Process, Processes
from corral.worker.processes.records import Records, is_still, read_boot_id

GRACE_S = 10.0
WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class OrphanProcess:
    key: ProcessKey
    backend: str
    pid: int
    port: int


def find_orphans(state: Path) -> list[OrphanProcess]:
    """Blocking, read-only. Lists processes that are alive; they are orphans only if no worker is running."""
    found = []
    for directory in Records(state / "processes").all():
        record, started = directory.read(), directory.read_started()
        if record is None or started is None or record.boot_id != read_boot_id():
            continue
        if is_still(started.main_pid, started.main_ticks):
            found.append(OrphanProcess(record.spec.key, record.spec.backend, started.main_pid, record.port))
    return found


async def stop_orphans(processes: Processes) -> list[ProcessKey]:
    """Stops all concurrently. Returns those that were alive; raises StopFailed if the kernel does not end one."""
    found = await processes.survivors()
    alive = [process.record.spec.key for process in found if process.is_alive()]
    await asyncio.gather(*(_stop(process) for process in found))
    return alive


async def _stop(process: Process) -> None:
    await process.update(replace(process.record, desired=DesiredRun.STOPPED, reason="stopped by an administrator"))
    left = await process.stop_tree(grace_s=GRACE_S, within_s=WITHIN_S)
    if left:
        raise StopFailed(process.record.spec.key, Stuck(left), within_s=WITHIN_S)
    await process.forget()


def describe_orphans(keys: Iterable[str]) -> str:
    names = sorted(keys)
    what = "1 backend" if len(names) == 1 else f"{len(names)} backends"
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"{what} ({shown})"
