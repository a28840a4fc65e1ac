"""What a test leaves behind: tasks of its event loop and, after a whole file, threads, processes and descriptors."""

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness import zygote

DESCRIPTORS = Path("/proc/self/fd")
_kept: set[tuple[int, str]] = set()
_expected_servers: set[str] = set()
CHILD_WATCHERS = "asyncio-waitpid-"
"""Threads of the standard library that end with the process they wait for. That process is what would be left."""


def expect_server(directory: Path) -> None:
    """A server of the whole run, whose command line names this directory. Tests may restart it."""
    _expected_servers.add(str(directory))


@contextmanager
def keeping(prefix: str = "") -> Iterator[None]:
    """Descriptors that this block opens and that begin so are kept for the rest of the run, by intention."""
    before = _descriptors()
    yield
    _kept.update(one for one in _descriptors() - before if one[1].startswith(prefix))


@dataclass(slots=True)
class Held:
    """By this run of tests, at one moment."""

    threads: set[threading.Thread] = field(default_factory=set)
    processes: set[psutil.Process] = field(default_factory=set)
    """Those below an expected process are its own affair, except below the preloaded parent: it starts what tests ask
    for."""
    descriptors: set[tuple[int, str]] = field(default_factory=set)

    def add(self, other: "Held") -> None:
        self.threads |= other.threads
        self.processes |= other.processes
        self.descriptors |= other.descriptors

    def without(self, expected: "Held") -> "Held":
        return Held(
            self.threads - expected.threads,
            {process for process in self.processes if expected.processes.isdisjoint(_with_parents(process))},
            self.descriptors - expected.descriptors,
        )

    def __bool__(self) -> bool:
        return bool(self.threads or self.processes or self.descriptors)


class Leaks:
    """Of one file after the other. What fixtures of the whole run start is expected (`expecting`), and so is the
    preloaded parent of forked processes."""

    def __init__(self, directory: Path, *, settle_within_s: float) -> None:
        """`directory`: where tests of this run have their files. A process whose command line names it belongs to this
        run, even if its parent has died.
        `settle_within_s`: threads and processes that were told to end take a moment. Only a leak takes all of it."""
        self._settle_within_s = settle_within_s
        self._mark = f"{directory}/"
        self._expected = Held()
        self._first_seen: dict[object, str] = {}

    def begin_file(self) -> None:
        self._expected = self.look()
        self._first_seen.clear()

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """For as long as the run lasts."""
        before = self.look()
        yield
        self._expected.add(self.look().without(before))

    def note(self, test: str) -> None:
        """Called after each test: to name the one that a leak came with."""
        for one in (*threading.enumerate(), *_descriptors()):
            self._first_seen.setdefault(one, test)

    def find(self) -> list[str]:
        """In words. What is on its way out is waited for."""
        lost = _collect()  # what nobody holds complains here, in the file that lost it, and not in another
        until_s = time.monotonic() + self._settle_within_s
        while (left := self.look().without(self._expected)) and time.monotonic() < until_s:
            time.sleep(0.05)
            lost += _collect()
        return [*lost, *self._describe(left)]

    def find_tasks(self, runner: asyncio.Runner) -> list[str]:
        """Of a loop whose test and fixtures have ended. What was cancelled is waited for."""

        async def settle() -> list[str]:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                _, others = await asyncio.wait(others, timeout=self._settle_within_s)
            return sorted(f"task {task.get_name()}: {task.get_coro()}" for task in others)

        return runner.run(settle())

    def look(self) -> Held:
        descriptors = _descriptors() - _kept
        if (preloaded := zygote.find_running()) is not None:
            descriptors = {(fd, target) for fd, target in descriptors if fd != preloaded.link_fd}
        threads = {thread for thread in threading.enumerate() if not thread.name.startswith(CHILD_WATCHERS)}
        return Held(threads, self._processes(), descriptors)

    def _processes(self) -> set[psutil.Process]:
        me = psutil.Process()
        preloaded = zygote.find_running()
        below = {
            process for process in me.children(recursive=True) if preloaded is None or process.pid != preloaded.pid
        }
        above = {process.pid for process in me.parents()} | {me.pid}
        named = {process for process in psutil.process_iter() if process.pid not in above and self._is_named(process)}
        return {process for process in below | named if _is_running(process) and not _is_expected_server(process)}

    def _is_named(self, process: psutil.Process) -> bool:
        return any(self._mark in word for word in _command(process))

    def _describe(self, left: Held) -> list[str]:
        return [
            *(f"thread {one.name}{self._since(one)}" for one in sorted(left.threads, key=lambda one: one.name)),
            *(_describe_process(process) for process in sorted(left.processes, key=lambda one: one.pid)),
            *(f"descriptor {fd} of {target}{self._since((fd, target))}" for fd, target in sorted(left.descriptors)),
        ]

    def _since(self, one: object) -> str:
        return f" since {self._first_seen[one]}" if one in self._first_seen else ""


def _collect() -> list[str]:
    """Exceptions in finalizers, such as of a socket that was never closed."""
    lost: list[str] = []
    usual = sys.unraisablehook
    sys.unraisablehook = lambda raised: lost.append(f"{raised.exc_value!r} in {raised.object!r}")
    try:
        gc.collect()
    finally:
        sys.unraisablehook = usual
    return lost


def _descriptors() -> set[tuple[int, str]]:
    """Without the standard ones, which pytest replaces to capture what tests print."""
    found = set()
    for fd in map(int, os.listdir(DESCRIPTORS)) if DESCRIPTORS.is_dir() else ():
        try:
            if fd > 2:
                found.add((fd, os.readlink(DESCRIPTORS / str(fd))))
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


def _with_parents(process: psutil.Process) -> set[psutil.Process]:
    try:
        return {process, *process.parents()}
    except psutil.Error:
        return {process}


def _is_expected_server(process: psutil.Process) -> bool:
    return any(not _expected_servers.isdisjoint(_command(one)) for one in _with_parents(process))


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _describe_process(process: psutil.Process) -> str:
    try:
        test = process.environ().get("PYTEST_CURRENT_TEST", "")
        return f"process {process.pid}: {' '.join(process.cmdline())[:300]}{test and f' since {test}'}"
    except psutil.Error as error:
        return f"process {process.pid}: {error}"
