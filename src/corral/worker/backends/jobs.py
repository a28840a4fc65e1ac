"""Long-running jobs: identical requests share one job, and each request can be cancelled separately."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from corral.artifacts import CancelToken
from corral.artifacts.errors import Cancelled
from corral.core.transfer import TransferProgress

Result = TypeVar("Result")
Listener = Callable[[TransferProgress], None]
Work = Callable[[CancelToken, Listener], Awaitable[Result]]

LOOK_EVERY_S = 0.25


async def unless_cancelled(cancel: CancelToken, step: Coroutine[Any, Any, Result]) -> Result:
    """Runs a step without side effects, such as waiting for a lock, and aborts it shortly after a cancel."""
    task = asyncio.ensure_future(step)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY_S))[0]:
            cancel.check()
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(eq=False, slots=True)
class _Caller:
    op_id: str
    listener: Listener | None
    left: "asyncio.Future[None]"


@dataclass(eq=False, slots=True)
class _Job:
    backend: str
    outcome: "asyncio.Future[Any]"
    token: CancelToken = field(default_factory=CancelToken)
    callers: list[_Caller] = field(default_factory=list)
    last: TransferProgress | None = None

    def report(self, progress: TransferProgress) -> None:
        self.last = progress
        for caller in self.callers:
            if caller.listener is not None:
                caller.listener(progress)


class Jobs:
    """Jobs run as tasks of the given group: neither a departed caller nor a lost bus connection stops them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._jobs: dict[bytes, _Job] = {}

    async def join(
        self, key: bytes, work: Work[Result], *, backend: str, op_id: str = "", listener: Listener | None = None
    ) -> Result:
        """The result of the job with that key, which is started unless it is running."""
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(backend, asyncio.get_running_loop().create_future())
            job.outcome.add_done_callback(_retrieve_exception)
            self._tasks.create_task(self._run(key, job, work), name=f"job {backend}")
        elif job.last is not None and listener is not None:
            listener(job.last)
        caller = _Caller(op_id, listener, asyncio.get_running_loop().create_future())
        job.callers.append(caller)
        try:
            await asyncio.wait({job.outcome, caller.left}, return_when=asyncio.FIRST_COMPLETED)
            if not job.outcome.done():
                raise Cancelled(
                    f"The request for {backend} was cancelled; another request continues it.", keep_partials=True
                )
            result: Result = job.outcome.result()
            return result
        finally:
            if caller in job.callers:
                job.callers.remove(caller)

    def cancel(self, *, op_id: str = "", backend: str = "", keep: bool = False) -> int:
        """The number of cancelled requests. A job continues while other requests wait for it."""
        cancelled = 0
        for job in self._jobs.values():
            leaving = [
                caller
                for caller in job.callers
                if (op_id and caller.op_id == op_id) or (backend and job.backend == backend)
            ]
            cancelled += len(leaving)
            if leaving and len(leaving) == len(job.callers):
                job.token.cancel(keep_partials=keep)  # the job raises Cancelled in them once it has stopped writing
                continue
            for caller in leaving:
                if not caller.left.done():
                    caller.left.set_result(None)
        return cancelled

    async def _run(self, key: bytes, job: _Job, work: Work[Any]) -> None:
        try:
            result = await work(job.token, job.report)
        except asyncio.CancelledError:
            job.outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001  passed to the callers
            job.outcome.set_exception(error)
        else:
            job.outcome.set_result(result)
        finally:
            del self._jobs[key]


def _retrieve_exception(outcome: "asyncio.Future[Any]") -> None:
    """Retrieves the exception, in case that no caller waits for it any more."""
    if not outcome.cancelled():
        outcome.exception()
