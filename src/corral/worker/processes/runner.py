"""The life of one key: start, ready, serve, crash, wait, start again; until it is stopped or given up."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from corral.core.errors import CorralError, Unavailable
from corral.core.processes.process import (
    BackingOff,
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
from corral.worker.processes.probes import Probe
from corral.worker.processes.readiness import BecameReady, NotReady, await_ready

log = structlog.get_logger()

_OTHER_PORTS = 3  # tried when a stranger took ours between the look and the start
_RETRY_STOP_AFTER_S = 5.0

BeforeStop = Callable[[ProcessView], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class RunnerContext:
    """What every life is handed."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    reason: str
    grace_s: float
    before: BeforeStop | None = None


class ProcessRunner:
    def __init__(self, spec: ProcessSpec, around: RunnerContext, *, found: Process | None = None) -> None:
        self.spec = spec
        self.state: ProcessState = ProcessStarting(attempt=0)
        self.process = found
        self.stuck: Stuck | None = None
        self._around = around
        self._news = asyncio.Event()
        self._try_again = asyncio.Event()  # to end what is stuck, before it is due
        self._order: asyncio.Future[StopOrder] = asyncio.get_running_loop().create_future()
        self._crashes_s: tuple[float, ...] = ()
        self._restarts = 0
        self._was_ready = False
        self._foreign_ports: frozenset[int] = frozenset()
        self._previous: Process | None = None  # crashed, and about to be replaced
        self._log = log.bind(process=spec.key, backend=spec.backend)
        if found is not None:
            record = found.record
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
        return self._order.done()

    def stop(self, order: StopOrder) -> None:
        """Once: a second order changes nothing, its giver waits for the first. What would not end is tried anew, so
        that the giver is told how it is now and not how it was."""
        if not self._order.done():
            self._order.set_result(order)
        self.stuck = None
        self._try_again.set()

    async def confirm(self, generation: int | None) -> None:
        """A newer order wants what runs already. Noted where a restart of either finds it."""
        if generation is None or (self.spec.generation is not None and generation <= self.spec.generation):
            return
        self.spec = replace(self.spec, generation=generation)
        if self.process is not None:
            await self._note(self.process, replace(self.process.record, spec=self.spec))
        self._around.changed(self.view)

    async def until(self, is_so: Callable[["ProcessRunner"], bool]) -> None:
        """Waiting costs nobody anything: a caller who leaves neither stops nor hurries the process."""
        while not is_so(self):
            await self._news.wait()

    async def run(self) -> None:
        """Ends when the process is stopped or given up. Cancelled, it leaves the process to the next worker."""
        try:
            await self._live()
        except CorralError as problem:
            await self._fail(Failed(reason=str(problem), last=Exit(problem=str(problem))))
        except Exception as problem:  # noqa: BLE001  the edge of a life: the others go on
            self._log.exception("process.life_failed")
            await self._fail(
                Failed(reason=f"an error of the worker itself: {problem!r}", last=Exit(problem=repr(problem)))
            )

    async def _live(self) -> None:
        while True:
            process: Process | None = None
            ended: Exit | NotReady | StopOrder
            match self.process or await self._launch():
                case Exit() as ended:
                    pass
                case process:
                    ended = await self._serve(process)
            match ended:
                case StopOrder():
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
        """A restart that finds no port or no memory counts as a crash; the first start tells its caller instead."""
        around = self._around
        self._become(ProcessStarting(attempt=self._restarts))
        port = None
        try:
            port = around.ports.take(self.key, avoid=self._foreign_ports)
            process = await around.processes.launch(
                self.spec, port=port, restarts=self._restarts, crashes_s=self._crashes_s
            )
        except BaseException as problem:
            if port is not None:
                around.ports.release(port, self.key)
            if isinstance(problem, Unavailable) and self._was_ready:
                return Exit(problem=str(problem))
            raise
        self.process = process
        self._log.info("process.launched", pid=process.pid, port=port, attempt=self._restarts)
        # The record of a crash goes only now: a worker killed before leaves the wish to start again behind.
        await self._forget_previous()
        return process

    async def _serve(self, process: Process) -> Exit | NotReady | StopOrder:
        """Until something ends it. An order to stop counts more than an exit that came at the same time."""
        record = process.record
        if record.wanted == "stopped":
            return StopOrder(reason=record.reason, grace_s=self._around.grace_s)
        if not (record.was_ready and await process.find_listener() is Listener.OURS):
            probe = self._around.probe_of(self.spec)
            outcome = await first_of(self._ordered(), process.wait(), await_ready(process, probe, self.spec.readiness))
            if not isinstance(outcome, BecameReady):
                return outcome
            # The newest of both: while it started, a newer order may have confirmed it.
            await self._note(process, replace(process.record, spec=self.spec, was_ready=True))
        self._was_ready = True
        self._become(Ready(port=record.port, token=record.token))
        self._log.info("process.ready", pid=process.pid, port=record.port)
        return await first_of(self._ordered(), process.wait())

    async def _ordered(self) -> StopOrder:
        return await asyncio.shield(self._order)

    async def _recover(self, process: Process | None, ended: Exit) -> bool:
        """After a crash: True when it is time to start again. A first start is not repeated; whoever asked decides."""
        around = self._around
        if isinstance(self.state, Ready):
            # Told before anything else is done: whoever sends requests here must not wait for our clearing up.
            self._become(BackingOff(delay_s=0.0, attempt=self._restarts + 1, last=ended))
        words = await process.last_words() if process is not None else ()
        await self._count_crash(process)
        self._log.warning("process.ended", how=ended.describe(), crashes=len(self._crashes_s), last_words=words[-3:])
        if process is not None:
            await self._end_tree(process, grace_s=0, within_s=around.stop_within_s)
            around.ports.release(process.record.port, self.key)
        plan = plan_restart(around.policy, self._crashes_s, now_s=around.clock.monotonic_s(), draw=around.ids.draw())
        if not self._was_ready or isinstance(plan, GiveUp):
            reason = ended.describe() if not isinstance(plan, GiveUp) else f"{ended.describe()}; {plan.reason}"
            await self._fail(Failed(reason=reason, last=ended, stderr_tail=words))
            return False
        self._restarts += 1
        self._become(BackingOff(delay_s=plan.delay_s, attempt=plan.attempt, last=ended))
        order = await first_of(self._ordered(), asyncio.sleep(plan.delay_s))
        if order is not None:
            await self._stop(process, order)
            return False
        self._previous, self.process = process or self._previous, None
        return True

    async def _count_crash(self, process: Process | None) -> None:
        if process is not None and process.record.counted:
            return  # by an earlier worker, which was killed while it waited to start it again
        now_s = self._around.clock.monotonic_s()
        self._crashes_s = (*recent_crashes(self._around.policy, self._crashes_s, now_s=now_s), now_s)
        if process is not None:
            await self._note(process, replace(process.record, crashes_s=self._crashes_s, counted=True))

    async def _stop(self, process: Process | None, order: StopOrder) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._around.stop_within_s
        if process is not None:
            await self._note(process, replace(process.record, wanted="stopped", reason=order.reason))
        was_ready = isinstance(self.state, Ready)
        self._become(Stopping(reason=order.reason))
        if order.before is not None and was_ready:
            await self._say_goodbye(order.before)
        if process is not None:
            await self._clear(process, grace_s=order.grace_s, within_s=max(1.0, until_s - loop.time()))
        await self._forget_previous()
        self._log.info("process.stopped", reason=order.reason)
        self._become(ProcessStopped(reason=order.reason))

    async def _note(self, process: Process, record: ProcessRecord) -> None:
        """Before it is acted upon. A full disk does not keep a process from being stopped; the next worker may then
        take it for one to be kept, and is told so by whoever wants it gone."""
        try:
            await process.update(record)
        except OSError as problem:
            self._log.error("process.record_not_written", error=str(problem))

    async def _say_goodbye(self, before: BeforeStop) -> None:
        """Best effort: a backend that does not listen is stopped all the same."""
        try:
            async with asyncio.timeout(self._around.before_stop_within_s):
                await before(self.view)
        except TimeoutError:
            self._log.warning("process.unload_timed_out")
        except Exception as problem:  # noqa: BLE001  a caller's code, and best effort
            self._log.warning("process.unload_failed", error=repr(problem), exc_info=True)

    async def _clear(self, process: Process, *, grace_s: float = 0, within_s: float | None = None) -> None:
        await self._end_tree(process, grace_s=grace_s, within_s=within_s or self._around.stop_within_s)
        self._around.ports.release(process.record.port, self.key)
        await process.forget()
        self.process = None

    async def _end_tree(self, process: Process, *, grace_s: float, within_s: float) -> None:
        """Returns when nothing is left. What the kernel holds is tried again for as long as it takes."""
        while left := await self._stop_tree(process, grace_s=grace_s, within_s=within_s):
            self.stuck, grace_s = left, 0
            self._try_again.clear()
            self._log.error("process.will_not_end", pids=left.pids, problem=left.problem)
            self._tell()
            await first_of(self._try_again.wait(), asyncio.sleep(_RETRY_STOP_AFTER_S, result=True))
        self.stuck = None

    async def _stop_tree(self, process: Process, *, grace_s: float, within_s: float) -> Stuck | None:
        try:
            # Half of the time belongs to KILL, however long a grace was asked for.
            left = await process.stop_tree(grace_s=min(grace_s, within_s / 2), within_s=within_s)
        except OSError as problem:  # a machine out of descriptors cannot tell who is left: not knowing is not "nobody"
            return Stuck((process.pid or 0,), problem=str(problem))
        return Stuck(left) if left else None

    async def _fail(self, failed: Failed) -> None:
        try:
            if self.process is not None:
                await self._clear(self.process)
            await self._forget_previous()
        except Exception:  # noqa: BLE001  the first failure is the one to tell
            self._log.exception("process.clear_failed")
        self._log.error("process.failed", reason=failed.reason)
        self._become(failed)

    async def _forget_previous(self) -> None:
        if self._previous is not None:
            await self._previous.forget()
            self._previous = None

    def _become(self, state: ProcessState) -> None:
        self.state = state
        self._tell()
        try:
            self._around.changed(self.view)
        except Exception:  # noqa: BLE001  a listener's trouble is not the process's
            self._log.exception("process.listener_failed")

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
