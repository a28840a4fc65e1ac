"""A preloaded parent: tests fork `corral` processes from it instead of importing everything hundreds of times.

One runs beside each process of pytest. A child differs from one that was started with `python -m corral` in nothing but
its command line in /proc: it has its own session, environment, descriptors and handlers, and ends as any other."""

import atexit
import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROLES = (
    "corral.cli.commands.frontend",
    "corral.cli.commands.worker",
    "corral.roles.worker",
    "corral.worker.processes.local",
    "uvloop",
)
COMMANDS = (
    "audit", "backends", "chat", "doctor", "join-command", "keys", "models", "nodes", "ops", "status", "usage", "why",
)  # fmt: skip
FOR_THE_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_")
"""Variables that count when a program starts: whoever sets another value gets a process of its own."""
REQUEST_MOST = 1 << 20


class ForkedProcess:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"corral process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, within_s: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                self._ended.settimeout(within_s)
                try:
                    told = self._ended.recv(16)
                except (TimeoutError, BlockingIOError):
                    return None
                self._ended.close()
                if not told:
                    raise RuntimeError(f"the preloaded parent of process {self.pid} has died")
                self.returncode = int(told)
            return self.returncode


class Zygote:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._environment = {key: os.environ[key] for key in os.environ if key.startswith(FOR_THE_INTERPRETER)}
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self._close)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def link_fd(self) -> int:
        return self._link.fileno()

    def _close(self) -> None:
        self._link.close()
        self._process.wait(10)

    def can_start(self, environment: Mapping[str, str]) -> bool:
        wanted = {key: environment[key] for key in environment if key.startswith(FOR_THE_INTERPRETER)}
        return wanted == self._environment

    def start(
        self, arguments: Sequence[str], *, environment: Mapping[str, str], output: int, errors: int
    ) -> ForkedProcess:
        """`output` and `errors` are descriptors; its input is empty."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"arguments": arguments, "environment": dict(environment), "directory": os.getcwd()})
        with theirs, self._lock, open(os.devnull, "rb") as nothing:
            fds = [theirs.fileno(), nothing.fileno(), output, errors]
            socket.send_fds(self._link, [request.encode()], fds)
            pid = int(self._link.recv(16))
        return ForkedProcess(pid, ours)


is_used = False
"""Set by tests/conftest.py: benchmarks measure processes as users start them."""


@cache
def _zygote() -> Zygote:
    return Zygote()


def find_zygote(environment: Mapping[str, str]) -> Zygote | None:
    """The one to start a program with this environment, if any can."""
    return _zygote() if is_used and _zygote().can_start(environment) else None


def find_running() -> Zygote | None:
    """That of this process, if any test needed it so far."""
    return _zygote() if _zygote.cache_info().currsize else None


# The parent itself


def preload() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
    from corral.cli.main import COMMANDS as PLACES
    from corral.cli.main import _lean

    with _lean():
        for module in (*ROLES, *(PLACES[name][0] for name in COMMANDS)):
            importlib.import_module(module)


def serve(link: socket.socket) -> None:
    """Returns in each child, ready to run the command; ends with the tests' process."""
    children: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready = selectors.DefaultSelector()
    ready.register(link, selectors.EVENT_READ)
    ready.register(woken, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is woken:
                with suppress(BlockingIOError):
                    woken.recv(4096)
                _reap(children)
                continue
            request, fds, _, _ = socket.recv_fds(link, REQUEST_MOST, 4)
            if not request:  # the tests' process has ended, perhaps by force
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                sys.exit()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                ready.close()
                for inherited in (link, woken, wake, *children.values()):
                    inherited.close()
                _become(json.loads(request), fds)
                return
            children[pid] = socket.socket(fileno=fds[0])
            for fd in fds[1:]:
                os.close(fd)
            link.send(str(pid).encode())


def _reap(children: dict[int, socket.socket]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with children.pop(pid) as told, suppress(BrokenPipeError):
            told.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for at, fd in enumerate(fds[1:]):
        os.dup2(fd, at)
    for fd in fds:
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    random.seed()
    sys.argv = ["corral", *request["arguments"]]


def main() -> NoReturn:
    preload()
    from corral.cli.main import main as run_corral

    gc.freeze()  # or the first collection of each child would copy all of it
    serve(socket.socket(fileno=int(sys.argv[1])))
    code: int | str | None = 1
    try:
        run_corral()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    # Not the interpreter's own end: taking apart all that was preloaded takes longer than most commands.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main()
