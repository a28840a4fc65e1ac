"""The keeper: one tiny program per backend process, its parent, which outlives the worker.

It starts the backend, writes its output to bounded log files, and notes how it ended. Should the worker be killed, the
backend neither loses its parent nor writes into a broken pipe, and the next worker finds everything on disk. For the
reasons see docs/adr/0201-a-shim-for-each-process.md.

Run as `python -I -S keeper.py` with its orders on standard input; imports only the standard library, and little of it,
because one copy runs for each backend.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing alone would double the time it takes to start
    from collections.abc import Callable
    from typing import NoReturn

ORDER_NAMES = ("run_dir", "log_dir", "directory", "groups", "oom_score", "rotate_bytes", "rotate_count")
ORDERS_END = "end of orders"
LINE_BYTES = 8192  # a longer line is broken, so that no backend makes us hold more
PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
RATE_BYTES_S = 1 << 20  # what a flooding backend may write to disk each second ...
BURST_BYTES = 8 << 20  # ... after this much at once
TAIL_BYTES = 1 << 16  # of what is dropped, the end is kept: it tells why a process died
PREFIX_BYTES = 16
IDLE_FLUSH_S = 1.0
DRAIN_S = 1.0  # how long output is still read after the process has ended
PR_SET_CHILD_SUBREAPER = 36
# Ignored or handled by us or, the last two, by the interpreter; a program inherits what is ignored.
CHANGED_SIGNALS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD),
    *(signal.SIGPIPE, signal.SIGXFSZ),
)

# Control characters become "?", except line ends. Done here too, so that the files are safe to show as they are.
HARMLESS = bytes(10 if b in (10, 13) else b if b == 9 or (b >= 32 and b != 127) else 63 for b in range(256))


class ShimSpec:
    """What the worker wants, as fields separated by zero bytes: no parser to import, no character to escape."""

    def __init__(self, data: bytes) -> None:
        *fields, end = [os.fsdecode(part) for part in data.split(b"\0")]
        if end != ORDERS_END:
            sys.exit("the worker was killed while it gave its orders; nothing is started")
        named = dict(zip(ORDER_NAMES, fields, strict=False))
        self.run_dir, self.log_dir, self.directory = named["run_dir"], named["log_dir"], named["directory"]
        self.groups = [part for part in named["groups"].split("\n") if part]
        self.oom_score = named["oom_score"]
        self.rotate_bytes, self.rotate_count = int(named["rotate_bytes"]), max(1, int(named["rotate_count"]))
        rest = fields[len(ORDER_NAMES) :]
        count = int(rest[0])
        self.command, rest = rest[1 : 1 + count], rest[1 + count :]
        count = int(rest[0])
        self.confinement = rest[1 : 1 + count]  # how it is kept to its own files: see confine.py
        self.environment = dict(part.partition("=")[::2] for part in rest[1 + count :])


class Log:
    """The current file and its older siblings. A full disk loses lines, never the backend."""

    def __init__(self, directory: str, rotate_bytes: int, rotate_count: int) -> None:
        self.directory, self.rotate_bytes, self.rotate_count = directory, rotate_bytes, rotate_count
        self.lost_bytes = 0
        self.fd: int | None = None
        self.size = 0
        self.open()

    def path(self, number: int) -> str:
        return os.path.join(self.directory, f"{number}.log" if number else "current.log")

    def open(self) -> None:
        with contextlib.suppress(OSError):
            self.fd = os.open(
                self.path(0), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            self.size = os.fstat(self.fd).st_size

    def rotate(self, fd: int) -> None:
        os.close(fd)
        self.fd = None
        for number in range(self.rotate_count - 1, -1, -1):
            with contextlib.suppress(OSError):
                os.rename(self.path(number), self.path(number + 1))  # the oldest is overwritten
        self.size = 0
        self.open()

    def write(self, records: bytes) -> None:
        """Whole lines, in pieces that fit: no file grows beyond its limit, unless by one line."""
        while records:
            room = self.rotate_bytes - self.size
            end = len(records) if len(records) <= room else records.rfind(b"\n", 0, max(room, 0)) + 1
            if end == 0 and self.size == 0:
                end = records.find(b"\n") + 1
            self.append(records[:end])
            records = records[end:]
            if records and self.fd is not None:
                self.rotate(self.fd)

    def append(self, records: bytes) -> None:
        if self.fd is None:
            self.open()
        if self.fd is None:
            self.lost_bytes += len(records)
            return
        view = memoryview(records)
        while view:
            try:
                written = os.write(self.fd, view)
            except OSError as problem:
                if problem.errno == errno.ENOSPC:  # make room by giving up the oldest lines; if that fails, these
                    self.forget_oldest()
                self.lost_bytes += len(view)
                return
            self.size += written
            view = view[written:]
        if self.lost_bytes:  # and now there is room again
            lost, self.lost_bytes = self.lost_bytes, 0
            self.append(b"%d e [corral: %d bytes of output lost, no room on disk]\n" % (now_ms(), lost))

    def forget_oldest(self) -> None:
        for number in range(self.rotate_count, 0, -1):
            try:
                os.unlink(self.path(number))
                return
            except OSError:
                continue


class LogBudget:
    """A bucket of bytes that fills with time."""

    def __init__(self) -> None:
        self.left, self.filled_s = float(BURST_BYTES), time.monotonic()

    def refill(self) -> None:
        now_s = time.monotonic()
        self.left = min(BURST_BYTES, self.left + (now_s - self.filled_s) * RATE_BYTES_S)
        self.filled_s = now_s


class Stream:
    """One of the two outputs: complete lines go to the log, the unfinished one waits a moment."""

    def __init__(self, fd: int, letter: bytes, log: Log, budget: LogBudget) -> None:
        self.fd, self.letter, self.log, self.budget = fd, letter, log, budget
        self.partial = b""
        self.partial_since_s = 0.0
        self.dropped_bytes = 0
        self.tail = b""

    def read(self) -> bool:
        """False at the end of the stream."""
        try:
            data = os.read(self.fd, PIPE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.finish()
            return False
        self.take(data)
        return True

    def take(self, data: bytes) -> None:
        self.budget.refill()
        cost = len(data) + PREFIX_BYTES * data.count(b"\n")  # an empty line is seventeen bytes on disk
        if self.dropped_bytes or self.budget.left < cost:
            self.dropped_bytes += len(data)
            self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            if self.budget.left >= BURST_BYTES / 8:
                self.recover()
            return
        self.write(data)

    def recover(self) -> None:
        """Out of the flood: say how much is missing, and show the end of it."""
        tail, missing = self.tail, self.dropped_bytes - len(self.tail)
        self.tail, self.dropped_bytes, self.partial = b"", 0, b""
        if missing > 0:
            self.write_records(b"[corral: %d bytes of output left out, too much at once]" % missing)
            tail = tail[tail.find(b"\n") + 1 :]
        self.write(tail)

    def write(self, data: bytes) -> None:
        lines = (self.partial + data).translate(HARMLESS)
        end = lines.rfind(b"\n") + 1
        self.partial = lines[end:]
        self.partial_since_s = time.monotonic()
        if end:
            self.write_records(lines[: end - 1])
        while len(self.partial) > LINE_BYTES:
            self.write_records(self.partial[:LINE_BYTES])
            self.partial = self.partial[LINE_BYTES:]

    def write_records(self, lines: bytes) -> None:
        prefix = b"%d %b " % (now_ms(), self.letter)
        records = prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n"
        self.budget.left -= len(records)
        self.log.write(records)

    def flush_idle(self) -> None:
        if self.dropped_bytes:
            self.budget.refill()
            if self.budget.left >= BURST_BYTES / 8:
                self.recover()
        if self.partial and time.monotonic() - self.partial_since_s >= IDLE_FLUSH_S:
            self.flush()

    def flush(self) -> None:
        partial, self.partial = self.partial, b""
        if partial:
            self.write_records(partial)

    def finish(self) -> None:
        if self.dropped_bytes:
            self.recover()
        self.flush()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_file(directory: str, name: str, text: str) -> None:
    """Whole or not at all: the worker may read at any moment, and either of us may be killed at any moment.

    Not synced to the disk: after a loss of power the machine boots anew and none of this matters.
    """
    path = os.path.join(directory, name)
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = text.encode()
        if os.write(fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def start_ticks(pid: int) -> int:
    """With the pid, the identity of a process until the next boot. 0 where /proc does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def become_subreaper() -> None:
    """So that a helper that forks twice becomes our child, not the init process's: we can find and end it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def load_confine() -> Callable[[list[str]], None]:
    """From the file beside this one, which no path leads to: we run isolated."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        import confine  # type: ignore[import-not-found]
    finally:
        del sys.path[0]
    found: Callable[[list[str]], None] = confine.confine
    return found


def run_child(orders: ShimSpec, go: int, status: int, outputs: tuple[int, int]) -> NoReturn:
    """In the child: everything up to the backend's first instruction. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        if os.read(go, 1) != b"g":
            os._exit(126)  # the keeper died before it had noted us
        for group in orders.groups:
            with contextlib.suppress(OSError), open(group, "w") as file:
                file.write("0")
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(orders.oom_score)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        os.umask(0o077)
        if orders.confinement:
            load_confine()(orders.confinement)
        os.chdir(orders.directory)
        os.closerange(3, status)  # the lock above all: it must end with the keeper
        os.closerange(status + 1, 1 << 16)
        os.execve(orders.command[0], orders.command, orders.environment)  # noqa: S606  no shell is the point
    except BaseException as problem:  # noqa: BLE001  whatever it was, the parent must hear of it
        with contextlib.suppress(OSError):
            os.write(status, f"{orders.command[0]}: {getattr(problem, 'strerror', None) or problem}".encode())
    os._exit(127)


def start_child(orders: ShimSpec) -> tuple[int, str | None, tuple[int, int]]:
    """(pid, problem or None, read ends). The backend's first instruction runs only after `started` is on disk."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (out_read, err_read, go_write, status_read):
            os.close(fd)
        run_child(orders, go_read, status_write, (out_write, err_write))
    for fd in (out_write, err_write, go_read, status_write):
        os.close(fd)
    for fd in (out_read, err_read):
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)  # fewer wake-ups in a flood
    me = os.getpid()
    write_file(orders.run_dir, "started", f"{me} {start_ticks(me)} {pid} {start_ticks(pid)}\n")
    with contextlib.suppress(OSError):  # killed already; we hear of it as of any other end
        os.write(go_write, b"g")
    os.close(go_write)
    problem = os.read(status_read, 4096).decode(errors="replace")  # ends empty when the program has started
    os.close(status_read)
    return pid, problem or None, (out_read, err_read)


def reap(main_pid: int) -> int | None:
    """The main process's status, once it has ended. Orphans that came to us are reaped along the way."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == main_pid:
            status = ended


def end_orphans(within_s: float) -> None:
    """What the backend leaves behind is ours now, and goes: a helper without its backend only holds the GPU."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        children = [pid for pid in all_pids() if parent_of(pid) == os.getpid()]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        reap(-1)


def all_pids() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def note_exit(run_dir: str, status: int, problem: str | None) -> None:
    code = signal_number = ""
    if problem is None and os.WIFSIGNALED(status):
        signal_number = str(os.WTERMSIG(status))
    elif problem is None:
        code = str(os.WEXITSTATUS(status))
    with contextlib.suppress(OSError):  # a full disk: how it ended is lost, that it ended is not
        write_file(run_dir, "exit", f"{code}\n{signal_number}\n{problem or ''}\n")


def keep(orders: ShimSpec, announce: Callable[[bytes], None]) -> None:
    become_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker decides about the backend; we follow the backend
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    log, budget = Log(orders.log_dir, orders.rotate_bytes, orders.rotate_count), LogBudget()
    pid, problem, fds = start_child(orders)
    announce(b"failed\n" if problem else b"started\n")
    streams = {fd: Stream(fd, letter, log, budget) for fd, letter in zip(fds, (b"o", b"e"), strict=True)}
    status, drain_until_s = None, None
    poll = select.poll()
    for fd in (*streams, wake_read):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while streams or status is None:
        ready = poll.poll(500 if drain_until_s is None else 50)
        for fd, _ in ready:
            if fd == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            elif not streams[fd].read():
                poll.unregister(fd)
                os.close(fd)
                del streams[fd]
        for stream in streams.values():
            stream.flush_idle()
        if any(stream.dropped_bytes for stream in streams.values()):
            time.sleep(0.005)  # in a flood the backend waits for us a little, instead of us for nothing else
        if status is None:
            status = reap(pid)
            if status is not None:
                note_exit(orders.run_dir, status, problem)
                end_orphans(DRAIN_S)
                drain_until_s = time.monotonic() + DRAIN_S
        if drain_until_s is not None and time.monotonic() >= drain_until_s:
            break
    for stream in streams.values():
        stream.finish()


def main() -> None:
    os.chdir("/")
    orders = ShimSpec(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDWR)
    announce_fd = os.dup(1)
    for fd in (0, 1):
        os.dup2(null, fd)

    def announce(word: bytes) -> None:
        with contextlib.suppress(OSError):  # a worker that died meanwhile will read the files instead
            os.write(announce_fd, word)
        os.close(announce_fd)

    keep(orders, announce)


if __name__ == "__main__":
    main()
