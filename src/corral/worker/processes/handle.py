"""One local process, from its start or adoption to its end."""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping

import structlog

from corral.core.processes.log_lines import LogLine
from corral.core.processes.process import Exit, ProcessRecord, ProcessSpec, TreeUsage
from corral.worker.processes.listeners import find_listener
from corral.worker.processes.logs import ProcessLog
from corral.worker.processes.machine_port import Listener
from corral.worker.processes.records import RecordDirectory
from corral.worker.processes.stats import read_tree_usage
from corral.worker.processes.tree import ProcessTree

log = structlog.get_logger()

_KILL_EVERY_S = 0.02
_SHIM_ENDS_WITHIN_S = 3.0  # it reads the remaining output for one second
_POLL_EVERY_S = 0.2
_TAIL_LINES = 20


class LocalProcess:
    """Dropping this object does not stop the process: its record is on disk, and the next worker adopts it."""

    def __init__(
        self,
        record: ProcessRecord,
        directory: RecordDirectory,
        tree: ProcessTree,
        process_log: ProcessLog,
    ) -> None:
        self.record, self.tree, self._directory, self._log = record, tree, directory, process_log
        self._writing = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self.tree.started.main_pid if self.tree.started is not None else None

    def is_alive(self) -> bool:
        """Checked with the kernel; cheap, reads two small files. False without its shim: it is then stopped soon."""
        return self.tree.main_is_alive and self.tree.shim_is_alive

    def has_shim(self) -> bool:
        return self.tree.shim_is_alive

    def is_current(self) -> bool:
        return self.record.directory_id == read_directory_id(self.record.spec)

    def reads_current_files(self) -> bool:
        return self.record.reads_ids is None or self.record.reads_ids == read_file_ids(self.record.spec)

    async def wait(self) -> Exit:
        """Waits until the shim has ended, which happens shortly after the end of the main process."""
        await self._shim_gone()
        return self._directory.read_exit() or Exit(problem="its shim was killed; the exit status is unknown")

    async def update(self, record: ProcessRecord) -> None:
        self.record = record
        async with self._writing:  # serialized; each writes the newest record
            await asyncio.to_thread(self._directory.write, self.record)

    async def stop_tree(self, *, grace_s: float, within_s: float) -> tuple[int, ...]:
        """Sends TERM, waits up to `grace_s`, then sends KILL. Returns the pids that the kernel did not end."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        if self.has_shim() and grace_s > 0:
            await asyncio.to_thread(self.tree.terminate)
            await self._shim_gone_within(min(grace_s, within_s))
        while left := await asyncio.to_thread(self.tree.kill):
            if loop.time() >= until_s:
                return tuple(left)
            await asyncio.sleep(_KILL_EVERY_S)
            _reap(left)
        if not await self._shim_gone_within(_SHIM_ENDS_WITHIN_S):
            await asyncio.to_thread(self.tree.kill_shim)
            await self._shim_gone_within(_SHIM_ENDS_WITHIN_S)
        return ()

    async def forget(self) -> None:
        """Removes its record and its group. Call it when no process is left."""
        await asyncio.to_thread(self._directory.remove)
        group = self.tree.group
        if group is not None:
            for _ in range(50):
                if await asyncio.to_thread(group.remove):
                    return
                await asyncio.sleep(_KILL_EVERY_S)
            log.warning("process.cgroup_not_removed", directory=str(group.directory))

    async def find_listener(self) -> Listener:
        pid = self.pid
        if pid is None:
            return Listener.NOBODY

        def members() -> list[int]:
            return [process.pid for process in self.tree.members(search=False)]

        return await asyncio.to_thread(find_listener, self.record.port, members, main_pid=pid)

    def read_usage(self, gpu_memory: Mapping[int, int] | None) -> TreeUsage:
        return read_tree_usage(self.tree.members(search=False), gpu_memory)

    async def activity(self) -> tuple[float, int]:
        """CPU time and log position: the process is active while either changes."""

        def read() -> tuple[float, int]:
            return round(self.read_usage(None).cpu_s, 1), self._log.written_bytes()

        return await asyncio.to_thread(read)

    async def last_output(self) -> tuple[str, ...]:
        """The last lines of its error output, or of its standard output if there are none; of this launch only."""

        def read() -> list[LogLine]:
            lines = [line for line in self._log.tail() if line.at_ms >= self.record.launched_ms]
            errors = [line for line in lines if line.stream == "stderr"]
            return (errors or lines)[-_TAIL_LINES:]

        return tuple(line.text for line in await asyncio.to_thread(read))

    async def _shim_gone_within(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._shim_gone()
        except TimeoutError:
            return False
        return True

    async def _shim_gone(self) -> None:
        started = self.tree.started
        if started is None:
            return
        pidfd = _open_pidfd(started.shim_pid)
        if pidfd is None:
            while self.has_shim():  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(_POLL_EVERY_S)
        else:
            try:
                # Checked with the descriptor open: from here on the pid cannot be reused.
                if self.has_shim():
                    await _readable(pidfd)
            finally:
                os.close(pidfd)
        _reap((started.shim_pid,))


def read_directory_id(spec: ProcessSpec) -> tuple[int, int] | None:
    """None for a process with a private directory, or whose directory was removed."""
    if spec.directory is None:
        return None
    return _id_of(spec.directory)


def read_file_ids(spec: ProcessSpec) -> tuple[tuple[int, int] | None, ...]:
    """Landlock rules apply to files, not to names: a replaced file is not accessible."""
    return tuple(_id_of(path) for path in spec.reads)


def _id_of(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _reap(pids: Iterable[int]) -> None:
    """Reaps children: shims started by this worker, and orphans of a killed shim if the worker is process 1."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # ended, not supported, or no descriptor left
        return None


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
