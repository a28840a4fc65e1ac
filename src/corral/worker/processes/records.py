"""The files about each process, from which the next worker continues after this one was killed.

    <state>/processes/<marker>/record.json   written by the worker before the start and at each decision
                               lock          held by the shim while it runs
                               started       written by the shim before it executes the backend
                               exit          written by the shim when the backend has ended

Files are replaced atomically by renaming but not synced: a record is valid only until the next boot.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.core.processes.process import Exit, ProcessRecord


@dataclass(frozen=True, slots=True)
class StartRecord:
    shim_pid: int
    shim_ticks: int
    main_pid: int
    main_ticks: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ProcessRecord).decode


@dataclass(frozen=True, slots=True)
class RecordDirectory:
    path: Path

    def write(self, record: ProcessRecord) -> None:
        new = self.path / "record.json.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_encode(record))
        new.rename(self.path / "record.json")

    def read(self) -> ProcessRecord | None:
        """None if it is missing or damaged: the worker was killed before it was written, or the disk failed."""
        try:
            return _decode((self.path / "record.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def read_started(self) -> StartRecord | None:
        try:
            shim, shim_ticks, main, main_ticks = map(int, (self.path / "started").read_text().split())
        except (OSError, ValueError):
            return None
        return StartRecord(shim, shim_ticks, main, main_ticks)

    def read_exit(self) -> Exit | None:
        try:
            code, number, problem = (self.path / "exit").read_text().split("\n", 2)
        except (OSError, ValueError):
            return None
        return Exit(
            code=int(code) if code.isdigit() else None,
            signal=int(number) if number.isdigit() else None,
            problem=problem.strip() or None,
        )

    def take_lock(self) -> int | None:
        """A descriptor that holds the lock, to be inherited by the shim; None while a shim holds it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(fd)
            if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        return fd

    def has_shim(self) -> bool:
        fd = self.take_lock()
        if fd is None:
            return True
        os.close(fd)
        return False

    def remove(self) -> None:
        """Removes the record first, so that the next worker does not adopt a partly removed directory."""
        (self.path / "record.json").unlink(missing_ok=True)
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            if self.path.exists():
                raise


@dataclass(frozen=True, slots=True)
class Records:
    root: Path

    def make(self, marker: str) -> RecordDirectory:
        path = self.root / marker
        path.mkdir(mode=0o711, parents=True)  # the backend's user traverses it to its private directory
        return RecordDirectory(path)

    def all(self) -> Iterator[RecordDirectory]:
        if self.root.is_dir():
            yield from (RecordDirectory(path) for path in sorted(self.root.iterdir()) if path.is_dir())


def read_boot_id(root: Path = Path("/")) -> str:
    """Empty if not available; processes are then compared by pid and start time only."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def read_start_ticks(pid: int) -> int | None:
    """With the pid, identifies a process until the next boot. None if it has ended, including zombies.

    Unbuffered for speed: called for each request that finds a model loaded.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        return int(fields[19]) if fields[0] not in (b"Z", b"X") else None
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return None


def is_still(pid: int, start_ticks: int) -> bool:
    """Whether the process is alive. If no descriptor is left to check, whether any process has this pid: reporting
    the process as ended would stop it."""
    try:
        return read_start_ticks(pid) == start_ticks
    except OSError:
        return _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
