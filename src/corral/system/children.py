"""Child processes of `corral up`: in sessions of their own, logging to files, and never outliving their parent."""

import asyncio
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG_MOST_BYTES = 20 << 20
_PR_SET_PDEATHSIG = 1


class Child:
    def __init__(self, process: asyncio.subprocess.Process, log_path: Path | None, log_start: int) -> None:
        self._process = process
        self._log_path = log_path
        self._log_start = log_start

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
        """The end of what this process wrote; what an earlier one left in the same file is not told again."""
        if self._log_path is None:
            return ""
        try:
            with self._log_path.open("rb") as file:
                size = self._log_path.stat().st_size
                file.seek(max(self._log_start if self._log_start <= size else 0, size - 16_384))
                return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


async def spawn_child(command: Sequence[str], *, environment: Mapping[str, str], log_path: Path | None) -> Child:
    """Without a log of its own it writes where we write."""
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
    """Runs between fork and exec: when the parent is killed, the kernel asks this child to stop."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def bound_log(path: Path) -> None:
    """Keep one older part. Copied and cut, because the writer keeps its file open (in append mode)."""
    older = path.with_suffix(path.suffix + ".1")
    try:
        if path.stat().st_size <= LOG_MOST_BYTES:
            return
    except FileNotFoundError:
        return
    try:
        shutil.copyfile(path, older)
    except OSError:
        older.unlink(missing_ok=True)  # no room for it: bounded goes before kept
    os.truncate(path, 0)


def python_command(*arguments: str) -> list[str]:
    """-P: modules in the directory somebody happens to stand in are not ours."""
    return [sys.executable, "-P", "-m", "corral", *arguments]


def find_program(name: str) -> str | None:
    """One installed with us goes before one on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
