"""Child processes of `corral up`: each in its own session, with a log file, and ended with its parent."""

import asyncio
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG_LIMIT_BYTES = 20 << 20
_PR_SET_PDEATHSIG = 1


class Adopted:
    """A child that was started before this process replaced its program. Linux only."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._handle = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._handle, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)  # it has not been waited for, so no other process has this id

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Child:
    def __init__(self, process: asyncio.subprocess.Process | Adopted, log_path: Path | None, log_start: int) -> None:
        self._process = process
        self._log_path = log_path
        self.log_start = log_start

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        """Exit code; negative for a signal."""
        return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def stop(self, *, within_s: float) -> None:
        """TERM, a bounded wait, KILL."""
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def read_log_tail(self, lines: int = 8) -> str:
        """The last lines that this process logged, without those of earlier processes in the same file."""
        if self._log_path is None:
            return ""
        try:
            with self._log_path.open("rb") as file:
                size = self._log_path.stat().st_size
                file.seek(max(self.log_start if self.log_start <= size else 0, size - 16_384))
                return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


async def spawn_child(command: Sequence[str], *, environment: Mapping[str, str], log_path: Path | None) -> Child:
    """Starts a child process. Without `log_path` it writes to our own output."""
    if log_path is None:
        return Child(await _spawn(command, environment, None), None, 0)
    log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    log_file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    log_start = os.fstat(log_file).st_size
    try:
        process = await _spawn(command, environment, log_file)
    finally:
        os.close(log_file)
    return Child(process, log_path, log_start)


async def _spawn(
    command: Sequence[str], environment: Mapping[str, str], output: int | None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=dict(environment),
        start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops its children in order
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """Runs between fork and exec: the kernel sends SIGTERM to this child when the parent dies."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def bound_log(path: Path) -> None:
    """Rotates a log file that is too large, keeping one older file. It is copied and truncated, because the writer
    keeps it open (in append mode)."""
    older = path.with_suffix(path.suffix + ".1")
    try:
        if path.stat().st_size <= LOG_LIMIT_BYTES:
            return
    except FileNotFoundError:
        return
    try:
        shutil.copyfile(path, older)
    except OSError:
        older.unlink(missing_ok=True)  # no disk space for the copy: limiting the log matters more than keeping it
    os.truncate(path, 0)


def python_command(*arguments: str) -> list[str]:
    """The command that runs Corral. -P: modules in the current directory must not be imported."""
    return [sys.executable, "-P", "-m", "corral", *arguments]


def find_program(name: str) -> str | None:
    """The path of a program; one installed with Corral takes precedence over one on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
