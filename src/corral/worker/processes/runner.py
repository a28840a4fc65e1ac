"""Runs the process of one key: start, wait until ready, serve, restart after a crash, until stopped or failed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from corral.core.errors import CorralError, Unavailable
from corral.core.processes.process import (
    ENDED_WELL,
    BackingOff,
    DesiredRun,
    Exit,
    Failed,
    ProcessKey,
    ProcessRecord,
    ProcessSpec,
    ProcessStarting,
    ProcessState,
    ProcessStopped,
    ProcessView,
    Ready,
    Stopping,
    Stuck,
)
from corral.core.processes.restarts import GiveUp, RestartPolicy, plan_restart, recent_crashes
from corral.system import Clock, Ids
from corral.worker.processes.first_of import first_of
from corral.worker.processes.machine_port import Listener, Process, Processes
from corral.worker.processes.ports import Ports
from corral.worker.processes.readiness import BecameReady, NotReady, Probe, await_ready

log = structlog.get_logger()

_OTHER_PORTS = 3  # attempts when another program takes the port before the start

BeforeStop = Callable[[ProcessView], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class RunnerContext:
    """Dependencies and limits shared by all runners."""

    processes: Processes
    ports: Ports
    clock: Clock
    ids: Ids
    probe_of: Callable[[ProcessSpec], Probe]
    changed: Callable[[ProcessView], None]
    policy: RestartPolicy
    grace_s: float
    stop_within_s: float
    before_stop_within_s: float
    retry_stop_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    reason: str
    grace_s: float
    before: BeforeStop | None = None


class ProcessRunner:
    def __init__(self, spec: ProcessSpec, context: RunnerContext, *, adopted: Process | None = None) -> None:
        self.spec = spec
        self.state: ProcessState = ProcessStarting(attempt=0)
        self.process = adopted
        self.stuck: Stuck | None = None
        self._context = context
        self._changed = asyncio.Event()
        self._try_again = asyncio.Event()  # retries the stop of a stuck process at once
        self._stop_request: asyncio.Future[StopRequest] = asyncio.get_running_loop().create_future()
        self._crashes_s: tuple[float, ...] = ()
        self._restarts = 0
        self._was_ready = False
        self._foreign_ports: frozenset[int] = frozenset()
        self._previous: Process | None = None  # crashed, and about to be replaced
        self._log = log.bind(process=spec.key, backend=spec.backend)
        if adopted is not None:
            record = adopted.record
            self._crashes_s, self._restarts = record.crashes_s, record.restarts
            self._was_ready = record.was_ready or record.restarts > 0

    @property
    def key(self) -> ProcessKey:
        return self.spec.key

    @property
    def view(self) -> ProcessView:
        pid, port = (None, None) if self.process is None else (self.process.pid, self.process.record.port)
        return ProcessView(spec=self.spec, state=self.state, pid=pid, port=port, restarts=self._restarts)

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, ProcessStopped | Failed)

    @property
    def is_stopping(self) -> bool:
        return self._stop_request.done()

    def stop(self, request: StopRequest) -> None:
        """Requests a stop. A second request has no effect but retries the end of a stuck process, so that its caller
        gets the current outcome."""
        if not self._stop_request.done():
            self._stop_request.set_result(request)
        self.stuck = None
        self._try_again.set()

    async def confirm(self, generation: int | None) -> None:
        """Records that a newer command requests the running process, durably over restarts of worker and process."""
        if generation is None or (self.spec.generation is not None and generation <= self.spec.generation):
            return
        self.spec = replace(self.spec, generation=generation)
        if self.process is not None:
            await self._note(self.process, replace(self.process.record, spec=self.spec))
        self._context.changed(self.view)

    async def until(self, is_so: Callable[["ProcessRunner"], bool]) -> None:
        """Waits for a condition. A caller who stops waiting does not affect the process."""
        while not is_so(self):
            await self._changed.wait()

    async def run(self) -> None:
        """Returns when the process was stopped or has failed. When cancelled, leaves the process to the next worker."""
        try:
            await self._run_until_ended()
        except CorralError as problem:
            await self._fail(Failed(reason=str(problem), last=Exit(problem=str(problem))))
        except Exception as problem:  # noqa: BLE001  a failed runner must not affect the others
            self._log.exception("process.runner_failed")
            await self._fail(
                Failed(reason=f"internal error of the worker: {problem!r}", last=Exit(problem=repr(problem)))
            )

    async def _run_until_ended(self) -> None:
        while True:
            process: Process | None = None
            ended: Exit | NotReady | StopRequest
            match self.process or await self._launch():
                case Exit() as ended:
                    pass
                case process:
                    ended = await self._serve(process)
            match ended:
                case StopRequest():
                    return await self._stop(process, ended)
                case NotReady(port_is_foreign=True) if process is not None and len(self._foreign_ports) < _OTHER_PORTS:
                    self._log.warning("process.port_taken", port=process.record.port)
                    self._foreign_ports |= {process.record.port}
                    await self._clear(process)
                    continue
                case NotReady():
                    ended = Exit(problem=ended.reason)
            if not await self._recover(process, ended):
                return None

    async def _launch(self) -> Process | Exit:
        """Starts the process. Without a port or memory, a first start raises and a restart counts it as a crash."""
        context = self._context
        self._become(ProcessStarting(attempt=self._restarts))
        port = None
        try:
            port = context.ports.take(self.key, avoid=self._foreign_ports)
            process = await context.processes.launch(
                self.spec, port=port, restarts=self._restarts, crashes_s=self._crashes_s
            )
        except BaseException as problem:  # also when cancelled, the port is free again
            if port is not None:
                context.ports.release(port, self.key)
            if isinstance(problem, Unavailable) and self._was_ready:
                return Exit(problem=str(problem))
            raise
        self.process = process
        self._log.info("process.launched", pid=process.pid, port=port, attempt=self._restarts)
        # The crash record is removed only now: a worker killed earlier leaves a record that causes a restart.
        await self._forget_previous()
        return process

    async def _serve(self, process: Process) -> Exit | NotReady | StopRequest:
        """Runs until something ends it. A stop request takes precedence over a simultaneous exit."""
        record = process.record
        if record.desired is DesiredRun.STOPPED:
            return StopRequest(reason=record.reason, grace_s=self._context.grace_s)
        if not (record.was_ready and await process.find_listener() is Listener.OURS):
            probe = self._context.probe_of(self.spec)
            ready = await_ready(process, probe, self.spec.readiness)
            outcome = await first_of(self._stop_requested(), process.wait(), ready)
            if self.spec.readiness.kind == "exits" and outcome == Exit(code=0):
                return StopRequest(reason=ENDED_WELL, grace_s=0)
            if not isinstance(outcome, BecameReady):
                return outcome
            # The current spec: a newer command may have confirmed the process while it was starting.
            await self._note(process, replace(process.record, spec=self.spec, was_ready=True))
        self._was_ready = True
        self._become(Ready(port=record.port, token=record.token))
        self._log.info("process.ready", pid=process.pid, port=record.port)
        return await first_of(self._stop_requested(), process.wait())

    async def _stop_requested(self) -> StopRequest:
        return await asyncio.shield(self._stop_request)

    async def _recover(self, process: Process | None, ended: Exit) -> bool:
        """Handles a crash. True when the process should be started again; a failed first start is not retried."""
        context = self._context
        if isinstance(self.state, Ready):
            # Reported first, so that clients stop sending requests before the cleanup is done.
            self._become(BackingOff(delay_s=0.0, attempt=self._restarts + 1, last=ended))
        output = await process.last_output() if process is not None else ()
        await self._count_crash(process)
        self._log.warning("process.ended", how=ended.describe(), crashes=len(self._crashes_s), last_output=output[-3:])
        if process is not None:
            await self._end_tree(process, grace_s=0, within_s=context.stop_within_s)
            context.ports.release(process.record.port, self.key)
        plan = plan_restart(context.policy, self._crashes_s, now_s=context.clock.monotonic_s(), draw=context.ids.draw())
        if not self._was_ready or isinstance(plan, GiveUp):
            reason = ended.describe() if not isinstance(plan, GiveUp) else f"{ended.describe()}; {plan.reason}"
            await self._fail(Failed(reason=reason, last=ended, stderr_tail=output))
            return False
        self._restarts += 1
        self._become(BackingOff(delay_s=plan.delay_s, attempt=plan.attempt, last=ended))
        request = await first_of(self._stop_requested(), asyncio.sleep(plan.delay_s))  # the back-off
        if request is not None:
            await self._stop(process, request)
            return False
        self._previous, self.process = process or self._previous, None
        return True

    async def _count_crash(self, process: Process | None) -> None:
        if process is not None and process.record.counted:
            return  # by an earlier worker that was killed during the back-off
        now_s = self._context.clock.monotonic_s()
        self._crashes_s = (*recent_crashes(self._context.policy, self._crashes_s, now_s=now_s), now_s)
        if process is not None:
            await self._note(process, replace(process.record, crashes_s=self._crashes_s, counted=True))

    async def _stop(self, process: Process | None, request: StopRequest) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._context.stop_within_s
        if process is not None:
            await self._note(process, replace(process.record, desired=DesiredRun.STOPPED, reason=request.reason))
        was_ready = isinstance(self.state, Ready)
        self._become(Stopping(reason=request.reason))
        if request.before is not None and was_ready:
            await self._unload(request.before)
        if process is not None:
            await self._clear(process, grace_s=request.grace_s, within_s=max(1.0, until_s - loop.time()))
        await self._forget_previous()
        self._log.info("process.stopped", reason=request.reason)
        self._become(ProcessStopped(reason=request.reason))

    async def _note(self, process: Process, record: ProcessRecord) -> None:
        """Writes a decision before acting on it. On a full disk the stop continues; the next worker may then adopt the
        process until a frontend requests the stop again."""
        try:
            await process.update(record)
        except OSError as problem:
            self._log.error("process.record_not_written", error=str(problem))

    async def _unload(self, before: BeforeStop) -> None:
        """Asks the backend to unload its model. Best effort: the process is stopped in any case."""
        try:
            async with asyncio.timeout(self._context.before_stop_within_s):
                await before(self.view)
        except TimeoutError:
            self._log.warning("process.unload_timed_out")
        except Exception as problem:  # noqa: BLE001  a caller's code, and best effort
            self._log.warning("process.unload_failed", error=repr(problem), exc_info=True)

    async def _clear(self, process: Process, *, grace_s: float = 0, within_s: float | None = None) -> None:
        await self._end_tree(process, grace_s=grace_s, within_s=within_s or self._context.stop_within_s)
        self._context.ports.release(process.record.port, self.key)
        await process.forget()
        self.process = None

    async def _end_tree(self, process: Process, *, grace_s: float, within_s: float) -> None:
        """Returns when no process is left. Retries without limit while the kernel does not end one."""
        while left := await self._stop_tree(process, grace_s=grace_s, within_s=within_s):
            self.stuck, grace_s = left, 0
            self._try_again.clear()
            self._log.error("process.stop_failed", pids=left.pids, problem=left.problem)
            self._notify()
            await first_of(self._try_again.wait(), asyncio.sleep(self._context.retry_stop_after_s, result=True))
        self.stuck = None

    async def _stop_tree(self, process: Process, *, grace_s: float, within_s: float) -> Stuck | None:
        try:
            # Half of the time is reserved for KILL, regardless of the requested grace period.
            left = await process.stop_tree(grace_s=min(grace_s, within_s / 2), within_s=within_s)
        except OSError as problem:  # out of descriptors: members may be left
            return Stuck((process.pid or 0,), problem=str(problem))
        return Stuck(left) if left else None

    async def _fail(self, failed: Failed) -> None:
        try:
            if self.process is not None:
                await self._clear(self.process)
            await self._forget_previous()
        except Exception:  # noqa: BLE001  the first failure is the one to report
            self._log.exception("process.clear_failed")
        self._log.error("process.failed", reason=failed.reason)
        self._become(failed)

    async def _forget_previous(self) -> None:
        if self._previous is not None:
            await self._previous.forget()
            self._previous = None

    def _become(self, state: ProcessState) -> None:
        self.state = state
        self._notify()
        try:
            self._context.changed(self.view)
        except Exception:  # noqa: BLE001  a failing listener must not affect the process
            self._log.exception("process.listener_failed")

    def _notify(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()
