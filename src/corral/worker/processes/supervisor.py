"""Owns all processes of the worker: one runner per process key, each a task of the given task group."""

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
from corral.worker.processes.readiness import Probe, local_probe
from corral.worker.processes.runner import BeforeStop, ProcessRunner, RunnerContext, StopRequest

log = structlog.get_logger()

_KEPT_FAILURES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """A process that is ready and listens on the port."""

    spec: ProcessSpec
    pid: int
    port: int
    token: str = field(repr=False)


def _ignore(_: ProcessView) -> None:
    """The default listener."""


class Supervisor:
    """Processes keep running when the task group ends, and the next worker adopts them; `stop_all` stops them."""

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
        retry_stop_after_s: float = 5.0,
    ) -> None:
        self._tasks, self._processes, self._ports = tasks, processes, ports
        self._runners: dict[ProcessKey, ProcessRunner] = {}
        self._context = RunnerContext(
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
            retry_stop_after_s=retry_stop_after_s,
        )

    def find_exhausted_ports(self) -> NoPortLeft | None:
        """Why no further process can get a port; None if one can."""
        return self._ports.find_exhausted()

    @property
    def logs(self) -> ProcessLogs:
        return self._processes.logs

    def list(self) -> tuple[ProcessView, ...]:
        return tuple(runner.view for runner in self._runners.values())

    def get(self, key: ProcessKey) -> ProcessView | None:
        runner = self._runners.get(key)
        return runner.view if runner is not None else None

    def running(self, key: ProcessKey) -> RunningProcess | None:
        """Checks with the kernel. None for a process that was killed externally, or that was started from a directory
        that has been replaced since."""
        runner = self._runners.get(key)
        if runner is None or runner.process is None or not runner.process.is_current():
            return None
        return _running(runner)

    def is_outdated(self, key: ProcessKey) -> bool:
        """Whether the process, running or not, was started from a directory that has been replaced since."""
        runner = self._runners.get(key)
        return runner is not None and runner.process is not None and not runner.process.is_current()

    def reads_current_files(self, key: ProcessKey) -> bool:
        """False if a file it may read was added or replaced after its start: it has no access to the new file."""
        runner = self._runners.get(key)
        return runner is None or runner.process is None or runner.process.reads_current_files()

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Idempotent: waits for an existing process of the same spec. Cancelling the call does not stop the process."""
        return await self.until_ready(await self.begin(spec))

    async def begin(self, spec: ProcessSpec) -> ProcessRunner:
        """Returns once the process is listed and can be stopped; it may not be ready yet."""
        runner = self._runners.get(spec.key)
        if runner is not None and runner.is_stopping:
            await runner.until(lambda it: it.is_over or bool(it.stuck))
            if runner.stuck:
                raise StopFailed(spec.key, runner.stuck, within_s=self._context.stop_within_s)
            runner = self._runners.get(spec.key)
        if runner is None or runner.is_over:
            runner = self._begin(ProcessRunner(spec, self._context))
        elif runner.spec != spec or (runner.process is not None and not runner.process.is_current()):
            raise AlreadyRunning(spec.key, running=runner.spec, requested=spec)
        else:
            await runner.confirm(spec.generation)
        return runner

    async def confirm(self, key: ProcessKey, generation: int | None) -> None:
        """Records that a newer command requests the process; reports show the command's generation from now on."""
        runner = self._runners.get(key)
        if runner is not None and not runner.is_stopping:
            await runner.confirm(generation)

    async def until_ready(self, runner: ProcessRunner) -> RunningProcess:
        await runner.until(lambda it: it.is_over or _running(it) is not None)
        match runner.state:
            case Failed() as failed:
                raise StartFailed(runner.key, failed)
            case ProcessStopped() as stopped:
                raise Unavailable(f"{runner.key} was stopped while starting: {stopped.reason}. Try again.")
            case Ready() | ProcessStarting() | BackingOff() | Stopping():
                running = _running(runner)
                assert running is not None
                return running

    async def stop(
        self, key: ProcessKey, *, reason: str, grace_s: float | None = None, before: BeforeStop | None = None
    ) -> bool:
        """True if a process was stopped completely, False if none was running. `before` gets a short time to unload."""
        runner = self._runners.get(key)
        if runner is None:
            return False
        if runner.is_over:
            self._runners.pop(key, None)
            return False
        grace_s = self._context.grace_s if grace_s is None else grace_s
        runner.stop(StopRequest(reason=reason, grace_s=grace_s, before=before))
        await runner.until(lambda it: it.is_over or bool(it.stuck))
        if runner.stuck:
            raise StopFailed(key, runner.stuck, within_s=self._context.stop_within_s)
        return True

    async def stop_all(self, *, reason: str) -> None:
        keys = [runner.key for runner in self._runners.values()]
        results = await asyncio.gather(*(self.stop(key, reason=reason) for key in keys), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def adopt(self) -> tuple[ProcessView, ...]:
        """Adopts the processes of an earlier worker: running ones continue, ended ones are restarted or cleaned up.
        Must be called before the first start, which could otherwise get the port of an adopted process."""
        adopted = []
        # Running ones first: a worker killed just after a restart leaves two records of one key; the older is obsolete.
        for process in sorted(await self._processes.survivors(), key=lambda it: not it.has_shim()):
            spec = process.record.spec
            if spec.key in self._runners:
                await process.forget()
                continue
            if process.has_shim():
                self._ports.keep(process.record.port, spec.key)
            log.info("process.adopted", process=spec.key, pid=process.pid, alive=process.is_alive())
            adopted.append(self._begin(ProcessRunner(spec, self._context, adopted=process)).view)
        return tuple(adopted)

    async def sample(self) -> Mapping[ProcessKey, TreeUsage]:
        running = {runner.key: runner.process for runner in self._runners.values() if runner.process is not None}
        usages = await self._processes.sample(list(running.values()))
        return dict(zip(running, usages, strict=True))

    def _begin(self, runner: ProcessRunner) -> ProcessRunner:
        self._runners[runner.key] = runner
        self._tasks.create_task(self._run(runner), name=f"process {runner.key}")
        return runner

    async def _run(self, runner: ProcessRunner) -> None:
        await runner.run()
        if isinstance(runner.state, ProcessStopped) and self._runners.get(runner.key) is runner:
            del self._runners[runner.key]
        failures = [other.key for other in self._runners.values() if other.is_over]
        for key in failures[:-_KEPT_FAILURES]:
            del self._runners[key]


def _running(runner: ProcessRunner) -> RunningProcess | None:
    process, state = runner.process, runner.state
    if not isinstance(state, Ready) or process is None or process.pid is None or not process.is_alive():
        return None
    return RunningProcess(spec=runner.spec, pid=process.pid, port=state.port, token=state.token)
