"""The shim: a small program that is the parent of one backend process and outlives the worker.

It starts the backend, writes its output to size-limited log files, and records its exit status. If the worker is
killed, the backend keeps its parent and its output pipes, and the next worker finds all state on disk. See
docs/adr/0201-a-shim-for-each-process.md.

Run as `python -I -S shim.py` with its spec on standard input. It imports only a small part of the standard library,
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
if TYPE_CHECKING:  # importing typing would double the start-up time
    from collections.abc import Callable
    from typing import NoReturn

SPEC_FIELDS = ("run_dir", "log_dir", "directory", "groups", "oom_score", "rotate_bytes", "rotate_count")
SPEC_END = "end of spec"
LINE_BYTES = 8192  # longer lines are split, which bounds memory
PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
RATE_BYTES_S = 1 << 20  # sustained log output allowed per second
BURST_BYTES = 8 << 20  # log output allowed at once
TAIL_BYTES = 1 << 16  # the end of dropped output is kept: it usually contains the cause of a failure
PREFIX_BYTES = 16
IDLE_FLUSH_S = 1.0
DRAIN_S = 1.0  # how long output is still read after the process has ended
PR_SET_CHILD_SUBREAPER = 36
# Ignored or handled by this program or, the last two, by the interpreter. Ignored signals are inherited.
CHANGED_SIGNALS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD),
    *(signal.SIGPIPE, signal.SIGXFSZ),
)

# Replaces control characters except line ends with "?", so that the log files are safe to display.
PRINTABLE = bytes(10 if b in (10, 13) else b if b == 9 or (b >= 32 and b != 127) else 63 for b in range(256))


class ShimSpec:
    """What to run, as fields separated by zero bytes: needs no parser and no escaping."""

    def __init__(self, data: bytes) -> None:
        *fields, end = [os.fsdecode(part) for part in data.split(b"\0")]
        if end != SPEC_END:
            sys.exit("the spec is incomplete: the worker was killed while sending it; nothing was started")
        named = dict(zip(SPEC_FIELDS, fields, strict=False))
        self.run_dir, self.log_dir, self.directory = named["run_dir"], named["log_dir"], named["directory"]
        self.groups = [part for part in named["groups"].split("\n") if part]
        self.oom_score = named["oom_score"]
        self.rotate_bytes, self.rotate_count = int(named["rotate_bytes"]), max(1, int(named["rotate_count"]))
        rest = fields[len(SPEC_FIELDS) :]
        count = int(rest[0])
        self.command, rest = rest[1 : 1 + count], rest[1 + count :]
        count = int(rest[0])
        self.confinement = rest[1 : 1 + count]  # steps for confine.py
        self.environment = dict(part.partition("=")[::2] for part in rest[1 + count :])


class Log:
    """The current log file and the rotated ones. A full disk loses lines but does not stop the backend."""

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
        """Writes whole lines and rotates in between: a file exceeds its limit by at most one line."""
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
                if problem.errno == errno.ENOSPC:  # free space by removing the oldest log file; these lines are lost
                    self.forget_oldest()
                self.lost_bytes += len(view)
                return
            self.size += written
            view = view[written:]
        if self.lost_bytes:  # writing works again
            lost, self.lost_bytes = self.lost_bytes, 0
            self.append(b"%d e [corral: %d bytes of output lost, disk full]\n" % (now_ms(), lost))

    def forget_oldest(self) -> None:
        for number in range(self.rotate_count, 0, -1):
            try:
                os.unlink(self.path(number))
                return
            except OSError:
                continue


class LogBudget:
    """A token bucket of bytes."""

    def __init__(self) -> None:
        self.left, self.filled_s = float(BURST_BYTES), time.monotonic()

    def refill(self) -> None:
        now_s = time.monotonic()
        self.left = min(BURST_BYTES, self.left + (now_s - self.filled_s) * RATE_BYTES_S)
        self.filled_s = now_s


class Stream:
    """Standard output or standard error: logs complete lines at once and an incomplete one after a short delay."""

    def __init__(self, fd: int, letter: bytes, log: Log, budget: LogBudget) -> None:
        self.fd, self.letter, self.log, self.budget = fd, letter, log, budget
        self.partial = b""
        self.partial_since_s = 0.0
        self.dropped_bytes = 0
        self.tail = b""

    def read(self) -> bool:
        """Reads what is available. False at the end of the stream."""
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
        cost = len(data) + PREFIX_BYTES * data.count(b"\n")  # an empty line takes 17 bytes on disk
        if self.dropped_bytes or self.budget.left < cost:
            self.dropped_bytes += len(data)
            self.tail = (self.tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            if self.budget.left >= BURST_BYTES / 8:
                self.recover()
            return
        self.write(data)

    def recover(self) -> None:
        """Ends dropping: logs how many bytes are missing and the tail of the dropped output."""
        tail, missing = self.tail, self.dropped_bytes - len(self.tail)
        self.tail, self.dropped_bytes, self.partial = b"", 0, b""
        if missing > 0:
            self.write_records(b"[corral: %d bytes of output dropped, rate limit exceeded]" % missing)
            tail = tail[tail.find(b"\n") + 1 :]
        self.write(tail)

    def write(self, data: bytes) -> None:
        lines = (self.partial + data).translate(PRINTABLE)
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
    """Replaces the file atomically: the worker may read it at any time, and either program may be killed at any time.

    Not synced to the disk: after a power failure the machine reboots and these files are obsolete.
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
    """With the pid, identifies a process until the next boot. 0 if /proc is not available."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def become_subreaper() -> None:
    """Makes helpers that fork twice children of this process instead of init, so that it can find and kill them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def load_confine() -> Callable[[list[str]], None]:
    """Imports confine.py from this directory, which is not on the import path in isolated mode."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        import confine  # type: ignore[import-not-found]
    finally:
        del sys.path[0]
    found: Callable[[list[str]], None] = confine.confine
    return found


def run_child(spec: ShimSpec, go: int, status: int, outputs: tuple[int, int]) -> NoReturn:
    """Runs in the child: prepares and executes the backend. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        if os.read(go, 1) != b"g":
            os._exit(126)  # the shim was killed before it had recorded this process
        for group in spec.groups:
            with contextlib.suppress(OSError), open(group, "w") as file:
                file.write("0")
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(spec.oom_score)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        os.umask(0o077)
        if spec.confinement:
            load_confine()(spec.confinement)
        os.chdir(spec.directory)
        os.closerange(3, status)  # in particular the lock, which must be released when the shim ends
        os.closerange(status + 1, 1 << 16)
        os.execve(spec.command[0], spec.command, spec.environment)  # noqa: S606  no shell is the point
    except BaseException as problem:  # noqa: BLE001  the parent must learn about any failure
        with contextlib.suppress(OSError):
            os.write(status, f"{spec.command[0]}: {getattr(problem, 'strerror', None) or problem}".encode())
    os._exit(127)


def start_child(spec: ShimSpec) -> tuple[int, str | None, tuple[int, int]]:
    """Returns (pid, problem or None, read ends). Executes the backend only after `started` has been written."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (out_read, err_read, go_write, status_read):
            os.close(fd)
        run_child(spec, go_read, status_write, (out_write, err_write))
    for fd in (out_write, err_write, go_read, status_write):
        os.close(fd)
    for fd in (out_read, err_read):
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)  # fewer wake-ups at high output rates
    own_pid = os.getpid()
    write_file(spec.run_dir, "started", f"{own_pid} {start_ticks(own_pid)} {pid} {start_ticks(pid)}\n")
    with contextlib.suppress(OSError):  # killed already; handled like any other exit
        os.write(go_write, b"g")
    os.close(go_write)
    problem = os.read(status_read, 4096).decode(errors="replace")  # empty if the program has started
    os.close(status_read)
    return pid, problem or None, (out_read, err_read)


def reap(main_pid: int) -> int | None:
    """The status of the main process, or None while it runs. Also reaps adopted orphans."""
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
    """Kills the helpers that the backend left behind: without their backend they only occupy the GPU."""
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


def record_exit(run_dir: str, status: int, problem: str | None) -> None:
    code = signal_number = ""
    if problem is None and os.WIFSIGNALED(status):
        signal_number = str(os.WTERMSIG(status))
    elif problem is None:
        code = str(os.WEXITSTATUS(status))
    with contextlib.suppress(OSError):  # on a full disk only the exit status is lost
        write_file(run_dir, "exit", f"{code}\n{signal_number}\n{problem or ''}\n")


def supervise(spec: ShimSpec, announce: Callable[[bytes], None]) -> None:
    become_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker stops the backend; the shim ends after it
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    log, budget = Log(spec.log_dir, spec.rotate_bytes, spec.rotate_count), LogBudget()
    pid, problem, fds = start_child(spec)
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
            time.sleep(0.005)  # slows down a backend that exceeds the rate limit
        if status is None:
            status = reap(pid)
            if status is not None:
                record_exit(spec.run_dir, status, problem)
                end_orphans(DRAIN_S)
                drain_until_s = time.monotonic() + DRAIN_S
        if drain_until_s is not None and time.monotonic() >= drain_until_s:
            break
    for stream in streams.values():
        stream.finish()


def main() -> None:
    os.chdir("/")
    spec = ShimSpec(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDWR)
    announce_fd = os.dup(1)
    for fd in (0, 1):
        os.dup2(null, fd)

    def announce(reply: bytes) -> None:
        with contextlib.suppress(OSError):  # the worker was killed; the next one reads the files
            os.write(announce_fd, reply)
        os.close(announce_fd)

    supervise(spec, announce)


if __name__ == "__main__":
    main()
