"""A disk that takes what is written and then fails to keep it: a process's calls to sync are answered with an
input/output error, as by a disk that dies. Or one that takes its time over it. strace does it, to a process that runs
already, and stops when told."""

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.waiting import wait_until

SYNCS = ("fsync", "fdatasync", "syncfs")
ALWAYS = "1+"


def inject(calls: Sequence[str], when: str) -> list[str]:
    """strace's words for it. `when` counts the calls of each thread by itself: "2" is the second, "2+" all since."""
    names = ",".join(calls)
    return ["-e", f"trace={names}", "-e", f"inject={names}:error=EIO:when={when}", "-e", "signal=none"]


def need_strace() -> str:
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed: no disk can be made to fail")
    return program


class FailingDisk:
    def __init__(self, log: Path) -> None:
        self._log = log

    @property
    def failures(self) -> list[str]:
        """Each call that was failed, as strace tells it."""
        return [line for line in self._log.read_text().splitlines() if "(INJECTED)" in line]


@contextmanager
def failing_disk(pid: int, log: Path, *calls: str, when: str = ALWAYS) -> Iterator[FailingDisk]:
    """While the block runs, those calls of the process fail (all that sync, if none are named)."""
    with _traced(pid, log, inject(calls or SYNCS, when)):
        yield FailingDisk(log)


@contextmanager
def slow_disk(pid: int, log: Path, call: str) -> Iterator[Callable[[], bool]]:
    """While the block runs, that call of the process takes a minute. Hands out whether it is in one."""
    injection = ["-e", f"trace={call}", "-e", f"inject={call}:delay_enter=60s", "-e", "signal=none"]
    with _traced(pid, log, injection):
        yield lambda: f"{call}(" in log.read_text()


@contextmanager
def _traced(pid: int, log: Path, injection: list[str]) -> Iterator[None]:
    command = [need_strace(), "-f", "-y", "-p", str(pid), "-o", str(log), *injection]
    said = log.with_suffix(".said")
    with said.open("wb") as output:
        strace = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(
            lambda: re.search(r"attached|Operation not permitted", said.read_text()) or strace.poll() is not None,
            what="strace is attached",
        )
        if "not permitted" in said.read_text() or strace.poll() is not None:
            pytest.skip(f"no process may be traced here: {said.read_text().strip()}")
        yield
    finally:
        strace.send_signal(signal.SIGINT)  # it lets go, and the process goes on by itself
        strace.wait(60)
