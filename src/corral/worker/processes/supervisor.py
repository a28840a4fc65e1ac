"""Owns every process of the worker: one life for each key, each a task of the group it was given."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from corral.core.errors import Unavailable
from corral.core.processes.ports import NoPortLeft
from corral.core.processes.process import (
    AlreadyRunning,
    BackingOff,
    Failed,
    ProcessKey,
    ProcessSpec,
    ProcessStarting,
    ProcessStopped,
    ProcessView,
    Ready,
    StartFailed,
    StopFailed,
    Stopping,
    TreeUsage,
)
from corral.core.processes.restarts import RestartPolicy
from corral.system import Clock, Ids
from corral.worker.processes.logs import ProcessLogs
from corral.worker.processes.machine_port import Processes
from corral.worker.processes.ports import Ports
from corral.worker.processes.probes import Probe, local_probe
from corral.worker.processes.runner import BeforeStop, ProcessRunner, RunnerContext, StopOrder

log = structlog.get_logger()

_KEPT_FAILURES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """A process that was ready when this was made, and is the one that answers on the port."""

    spec: ProcessSpec
    pid: int
    port: int
    token: str = field(repr=False)


def _ignore(_: ProcessView) -> None:
    """For callers who need no news."""


class Supervisor:
    """Leaving the task group leaves the processes running, for the next worker to adopt; `stop_all` ends them."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        processes: Processes,
        ports: Ports,
        *,
        clock: Clock,
        ids: Ids,
        probe_of: Callable[[ProcessSpec], Probe] = lambda spec: local_probe(spec.readiness),
        changed: Callable[[ProcessView], None] = _ignore,
        policy: RestartPolicy = RestartPolicy(),  # noqa: B008  a frozen value
        grace_s: float = 10.0,
        stop_within_s: float = 20.0,
        before_stop_within_s: float = 5.0,
    ) -> None:
        self._tasks, self._processes, self._ports = tasks, processes, ports
        self._lives: dict[ProcessKey, ProcessRunner] = {}
        self._around = RunnerContext(
            processes=processes,
            ports=ports,
            clock=clock,
            ids=ids,
            probe_of=probe_of,
            changed=changed,
            policy=policy,
            grace_s=grace_s,
            stop_within_s=stop_within_s,
            before_stop_within_s=before_stop_within_s,
        )

    def find_exhausted_ports(self) -> NoPortLeft | None:
        """Why no further process would get a port; None while one would."""
        return self._ports.find_exhausted()

    @property
    def logs(self) -> ProcessLogs:
        return self._processes.logs

    def list(self) -> tuple[ProcessView, ...]:
        return tuple(life.view for life in self._lives.values())

    def get(self, key: ProcessKey) -> ProcessView | None:
        life = self._lives.get(key)
        return life.view if life is not None else None

    def running(self, key: ProcessKey) -> RunningProcess | None:
        """Asks the kernel, not our memory. None for a process that was killed behind our back, and for one that was
        started from a directory that has been replaced since."""
        life = self._lives.get(key)
        if life is None or life.process is None or not life.process.is_current():
            return None
        return _running(life)

    def is_outdated(self, key: ProcessKey) -> bool:
        """Started from a directory that has been replaced since; dead or alive."""
        life = self._lives.get(key)
        return life is not None and life.process is not None and not life.process.is_current()

    def reads_current_files(self, key: ProcessKey) -> bool:
        """False when a file it may read has come or been replaced since it was started: it may not read the new one."""
        life = self._lives.get(key)
        return life is None or life.process is None or life.process.reads_current_files()

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Idempotent: the same spec joins what is starting or running. A caller who leaves does not stop it."""
        return await self.until_ready(await self.begin(spec))

    async def begin(self, spec: ProcessSpec) -> ProcessRunner:
        """On return it is listed, and a stop will find it; it may be long from ready."""
        life = self._lives.get(spec.key)
        if life is not None and life.is_stopping:
            await life.until(lambda it: it.is_over or bool(it.stuck))
            if life.stuck:
                raise StopFailed(spec.key, life.stuck, within_s=self._around.stop_within_s)
            life = self._lives.get(spec.key)
        if life is None or life.is_over:
            life = self._begin(ProcessRunner(spec, self._around))
        elif life.spec != spec or (life.process is not None and not life.process.is_current()):
            raise AlreadyRunning(spec.key, running=life.spec, requested=spec)
        else:
            await life.confirm(spec.generation)
        return life

    async def confirm(self, key: ProcessKey, generation: int | None) -> None:
        """A newer order wants the process as it is; reports tell the order's generation from now on."""
        life = self._lives.get(key)
        if life is not None and not life.is_stopping:
            await life.confirm(generation)

    async def until_ready(self, life: ProcessRunner) -> RunningProcess:
        await life.until(lambda it: it.is_over or _running(it) is not None)
        match life.state:
            case Failed() as failed:
                raise StartFailed(life.key, failed)
            case ProcessStopped() as stopped:
                raise Unavailable(f"{life.key} was stopped while it started: {stopped.reason}.")
            case Ready() | ProcessStarting() | BackingOff() | Stopping():
                running = _running(life)
                assert running is not None
                return running

    async def stop(
        self, key: ProcessKey, *, reason: str, grace_s: float | None = None, before: BeforeStop | None = None
    ) -> bool:
        """True when there was something to stop, and nothing of it is left. `before` is asked to unload, briefly."""
        life = self._lives.get(key)
        if life is None:
            return False
        if life.is_over:
            self._lives.pop(key, None)
            return False
        life.stop(StopOrder(reason=reason, grace_s=self._around.grace_s if grace_s is None else grace_s, before=before))
        await life.until(lambda it: it.is_over or bool(it.stuck))
        if life.stuck:
            raise StopFailed(key, life.stuck, within_s=self._around.stop_within_s)
        return True

    async def stop_all(self, *, reason: str) -> None:
        keys = [life.key for life in self._lives.values()]
        results = await asyncio.gather(*(self.stop(key, reason=reason) for key in keys), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def adopt(self) -> tuple[ProcessView, ...]:
        """Takes over what an earlier worker left: the living go on, the dead are restarted or their remains ended.
        Comes before the first start, which could otherwise be given the port of a survivor."""
        adopted = []
        # The living first: a worker killed just after a restart leaves two records of one key, and the older is done.
        for process in sorted(await self._processes.survivors(), key=lambda it: not it.is_kept()):
            spec = process.record.spec
            if spec.key in self._lives:
                await process.forget()
                continue
            if process.is_kept():
                self._ports.keep(process.record.port, spec.key)
            log.info("process.found", process=spec.key, pid=process.pid, alive=process.is_alive())
            adopted.append(self._begin(ProcessRunner(spec, self._around, found=process)).view)
        return tuple(adopted)

    async def sample(self) -> Mapping[ProcessKey, TreeUsage]:
        living = {life.key: life.process for life in self._lives.values() if life.process is not None}
        usages = await self._processes.sample(list(living.values()))
        return dict(zip(living, usages, strict=True))

    def _begin(self, life: ProcessRunner) -> ProcessRunner:
        self._lives[life.key] = life
        self._tasks.create_task(self._run(life), name=f"process {life.key}")
        return life

    async def _run(self, life: ProcessRunner) -> None:
        await life.run()
        if isinstance(life.state, ProcessStopped) and self._lives.get(life.key) is life:
            del self._lives[life.key]
        failures = [other.key for other in self._lives.values() if other.is_over]
        for key in failures[:-_KEPT_FAILURES]:
            del self._lives[key]


def _running(life: ProcessRunner) -> RunningProcess | None:
    process, state = life.process, life.state
    if not isinstance(state, Ready) or process is None or process.pid is None or not process.is_alive():
        return None
    return RunningProcess(spec=life.spec, pid=process.pid, port=state.port, token=state.token)
