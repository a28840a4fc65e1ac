"""Keeps the components of `corral up` running: restarts them, limits their logs, reports a full disk, and stops them in
order. When all are ready, the process continues as `corral.roles.up.__main__`, with half the memory (ADR 0856)."""

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from corral.core.backoff import PROCESS_RESTARTS
from corral.core.errors import CorralError
from corral.core.sizes import format_bytes
from corral.system import Clock, Disk, Ids
from corral.system.children import Adopted, Child, bound_log

STOP_WITHIN_S = 12.0
# A worker waits for requests in flight, deregisters and stops its backends; a stuck backend takes 20 s.
WORKER_STOP_WITHIN_S = 40.0
STEADY_AFTER_S = 20.0
BOUND_LOGS_EVERY_S = 30.0
SPAWN_RETRY_S = 10.0
LOOK_AT_DISK_EVERY_S = 3.0
FULL_BELOW_BYTES = 4 << 20
# Exit codes that mean that a restart does not help.
PERMANENT_FAILURES = (2, 3)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def print_line(text: str = "") -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.ENOSPC:  # the output is a file on a full disk: no reason to stop
            raise


class ComponentFailed(CorralError):
    code = "component_failed"


class Spawn(Protocol):
    async def __call__(self, command: Sequence[str], *, environment: Mapping[str, str], log_path: Path) -> Child: ...


@dataclass(slots=True)
class UpChild:
    name: str
    command: Sequence[str]
    log_path: Path
    child: Child | None = None
    started_s: float = 0.0
    failures: int = 0
    """Exits in a row, none of them after a steady run."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class UpSupervisor:
    def __init__(
        self, components: Sequence[UpChild], data: Path, *, spawn: Spawn, clock: Clock, ids: Ids, disk: Disk
    ) -> None:
        self._components = components
        self._data = data
        self._spawn = spawn
        self._clock, self._ids, self._disk = clock, ids, disk

    async def run(self, *beside: Coroutine[Any, Any, None]) -> None:
        """Runs until it is cancelled, or until a component cannot start at all. Then it stops all components. The
        coroutines run beside it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for component in self._components:
                    tasks.create_task(self._keep(component), name=component.name)
                tasks.create_task(self._bound_logs(), name="logs")
                tasks.create_task(self._watch_disk(), name="disk")
                for coroutine in beside:
                    tasks.create_task(coroutine)
        finally:
            print_line("\nStopping ...")
            await self._stop()
            print_line("Everything has stopped.")

    async def _keep(self, component: UpChild) -> None:
        while True:
            child = component.child
            if child is None:
                component.started_s = self._clock.monotonic_s()
                try:
                    child = component.child = await self._spawn(
                        component.command, environment=os.environ, log_path=component.log_path
                    )
                except OSError as error:
                    if not component.ready.is_set():
                        raise ComponentFailed(f"the {component.name} cannot start: {error}") from error
                    print_line(f"The {component.name} cannot start: {error}. Retrying in {SPAWN_RETRY_S:.0f} s.")
                    await asyncio.sleep(SPAWN_RETRY_S)
                    continue
            code = await child.wait()
            component.child = None
            if not component.ready.is_set() and code in PERMANENT_FAILURES:
                raise ComponentFailed(f"the {component.name} cannot start:\n{child.read_log_tail()}")
            lasted_s = self._clock.monotonic_s() - component.started_s
            component.failures = 1 if lasted_s > STEADY_AFTER_S else component.failures + 1
            delay_s = PROCESS_RESTARTS.delay_s(component.failures, self._ids.draw())
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            print_line(f"The {component.name} {how}; restarting in {delay_s:.1f} s. Log: {component.log_path}")
            last = child.read_log_tail(1).strip()
            if last and code > 0:
                print_line(f"  Last line: {last}")
            await asyncio.sleep(delay_s)

    async def _bound_logs(self) -> None:
        while True:
            for component in self._components:
                await asyncio.to_thread(bound_log, component.log_path)
            await asyncio.sleep(BOUND_LOGS_EVERY_S)

    async def _watch_disk(self) -> None:
        """Reports a full disk, because components that cannot write their logs cannot report it."""
        full = False
        while True:
            free = await asyncio.to_thread(self._disk.free_bytes, self._data)
            if free < FULL_BELOW_BYTES and not full:
                full = True
                print_line(
                    f"The disk of {self._data} is full ({format_bytes(free)} left): Corral cannot write, so changes"
                    " fail and nodes may appear offline. Free disk space; Corral then continues automatically."
                )
            elif full and free > 2 * FULL_BELOW_BYTES:
                full = False
                print_line(f"The disk of {self._data} has free space again ({format_bytes(free)}).")
            await asyncio.sleep(LOOK_AT_DISK_EVERY_S)

    async def _stop(self) -> None:
        """Stops the worker first, so that it can deregister at the frontend, and the bus last."""
        for component in reversed(self._components):
            if component.child is not None:
                await component.child.stop(
                    within_s=WORKER_STOP_WITHIN_S if component.name == "worker" else STOP_WITHIN_S
                )


async def continue_small(components: Sequence[UpChild], data: Path, *, lock: int, main: asyncio.Task[None]) -> None:
    """Replaces this program by the supervisor alone. The process id, the children and the lock stay. Returns where that
    is not possible, or when `main` is being cancelled."""
    if not hasattr(os, "pidfd_open"):
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # the new program receives them
    try:
        # A signal that came before is known to `main` after two rounds of the event loop.
        for _ in range(2):
            await asyncio.sleep(0)
        if main.cancelling():
            return
        reading, writing = os.pipe()
        os.write(writing, _as_json(components))
        os.close(writing)
        for descriptor in (reading, lock):
            os.set_inheritable(descriptor, True)
        # -P: modules in the current directory must not be imported.
        arguments = [sys.executable, "-P", "-m", "corral.roles.up", f"--data-dir={data}"]
        os.execv(sys.executable, [*arguments, f"--components={reading}", f"--lock={lock}"])  # noqa: S606
    except OSError:
        pass  # not enough memory, or no such interpreter any more: the larger program continues
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _as_json(components: Sequence[UpChild]) -> bytes:
    return json.dumps(
        [
            {
                "name": component.name,
                "command": list(component.command),
                "log_path": str(component.log_path),
                "started_s": component.started_s,
                "failures": component.failures,
                "running": (
                    None
                    if component.child is None or component.child.ended
                    else {"pid": component.child.pid, "log_start": component.child.log_start}
                ),
            }
            for component in components
        ]
    ).encode()


def read_components(descriptor: int) -> list[UpChild]:
    """The components that `continue_small` passed on, all of them ready. Requires a running event loop."""
    with os.fdopen(descriptor, "rb") as pipe:
        found = json.load(pipe)
    components = []
    for one in found:
        log_path, running = Path(one["log_path"]), one["running"]
        child = Child(Adopted(running["pid"]), log_path, running["log_start"]) if running is not None else None
        component = UpChild(one["name"], one["command"], log_path, child, one["started_s"], one["failures"])
        component.ready.set()
        components.append(component)
    return components
