"""Reads the log files of processes: the last lines, or new lines as they are written."""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from corral.bus.messages import LogRecord
from corral.core.processes.log_lines import LogLine, Stream, parse_record
from corral.core.processes.process import ProcessKey

KEPT_LINES = 1000
_BLOCK_BYTES = 1 << 16
_FOLLOW_EVERY_S = 0.25
_FOLLOW_BYTES = 1 << 18  # at high output rates a follower gets only the newest part
_FILE_NAME = re.compile(r"(\d+|current)\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    rotate_bytes: int = 4 << 20
    rotate_count: int = 2  # files besides the current one; at least one
    keys: int = 200  # number of stopped processes whose logs are kept


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position of a reader: a file, identified independently of its name, and an offset."""

    inode: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProcessLog:
    """The log of one process key, across restarts."""

    directory: Path

    def tail(self, count: int = KEPT_LINES, *, stream: Stream | None = None) -> list[LogLine]:
        """The last lines, oldest first. Reads only as much of the files as needed."""
        return self._tail(count, stream, None)

    def snapshot(self, count: int = KEPT_LINES) -> tuple[list[LogLine], LogPosition]:
        """The last lines and the position after them, from which `follow` continues without gaps or repetition."""
        place = self._end()
        return self._tail(count, None, place), place

    def _tail(self, count: int, stream: Stream | None, place: LogPosition | None) -> list[LogLine]:
        lines: list[LogLine] = []
        for path in self._files():
            lines = _read_tail(path, count - len(lines), stream, place) + lines
            if len(lines) >= count:
                break
        return lines[-count:] if count > 0 else []

    def written_bytes(self) -> int:
        """Changes with every line written. Not a size, because files are rotated."""
        place = self._end()
        return place.inode + place.offset

    async def follow(self, place: LogPosition) -> AsyncIterator[list[LogLine]]:
        """New lines in batches. A reader slower than the writer misses lines and does not slow the writer."""
        while True:
            await asyncio.sleep(_FOLLOW_EVERY_S)
            lines, place = await asyncio.to_thread(self._read_on, place)
            if lines:
                yield lines

    def _files(self) -> list[Path]:
        """Newest first."""
        numbers = sorted(int(path.stem) for path in self._present() if path.stem != "current")
        return [self.directory / "current.log", *(self.directory / f"{number}.log" for number in numbers)]

    def _present(self) -> list[Path]:
        try:
            return [path for path in self.directory.iterdir() if _FILE_NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []

    def _end(self) -> LogPosition:
        try:
            with (self.directory / "current.log").open("rb") as file:
                status = os.fstat(file.fileno())
                file.seek(max(0, status.st_size - _BLOCK_BYTES))
                unfinished = len(file.read().rpartition(b"\n")[2])
        except OSError:
            return LogPosition(0, 0)
        return LogPosition(status.st_ino, status.st_size - unfinished)

    def _read_on(self, place: LogPosition) -> tuple[list[LogLine], LogPosition]:
        inode, offset = place.inode, place.offset
        lines: list[LogLine] = []
        for path in (self.directory / "1.log", self.directory / "current.log"):
            try:
                with path.open("rb") as file:
                    status = os.fstat(file.fileno())
                    if path.name == "1.log" and status.st_ino != inode:
                        continue  # not the file of the position: no rotation since
                    start = offset if status.st_ino == inode else 0
                    file.seek(max(start, status.st_size - _FOLLOW_BYTES))
                    records = file.read(_FOLLOW_BYTES)
            except FileNotFoundError:
                continue
            whole, _, _ = records.rpartition(b"\n")
            lines += [line for record in whole.split(b"\n") if (line := parse_record(record))]
            unfinished = len(records) - len(whole) - 1 if whole else len(records)
            inode, offset = status.st_ino, max(start, status.st_size - _FOLLOW_BYTES) + len(records) - unfinished
        return lines, LogPosition(inode, offset)


def _read_tail(path: Path, count: int, stream: Stream | None, place: LogPosition | None) -> list[LogLine]:
    try:
        file = path.open("rb")
    except OSError:  # missing or unreadable: return no lines rather than fail
        return []
    with file:
        position = file.seek(0, os.SEEK_END)
        if place is not None and os.fstat(file.fileno()).st_ino == place.inode:
            position = min(position, place.offset)
        pending = b""
        lines: list[LogLine] = []
        while position > 0 and len(lines) < count:
            step = min(_BLOCK_BYTES, position)
            position -= step
            file.seek(position)
            pending = file.read(step) + pending
            # Up to its first line end, the block is the end of a line that starts in the previous block.
            head, separator, rest = pending.partition(b"\n") if position > 0 else (b"", b"\n", pending)
            if not separator:
                continue
            pending = head + b"\n" if position > 0 else b""
            lines = [line for record in rest.split(b"\n") if (line := _parse_of(record, stream))] + lines
        return lines[-count:]


def _parse_of(record: bytes, stream: Stream | None) -> LogLine | None:
    line = parse_record(record)
    return line if line is not None and stream in (None, line.stream) else None


@dataclass(frozen=True, slots=True)
class ProcessLogs:
    root: Path
    limits: LogLimits = field(default_factory=LogLimits)

    def of(self, key: ProcessKey) -> ProcessLog:
        return ProcessLog(self.root / directory_name(key))

    def make(self, key: ProcessKey) -> ProcessLog:
        log = self.of(key)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # names of models are private, too
        log.directory.mkdir(mode=0o700, exist_ok=True)
        (log.directory / "key").write_text(key)
        return log

    def keys(self) -> list[ProcessKey]:
        if not self.root.is_dir():
            return []
        return [ProcessKey(path.read_text()) for path in sorted(self.root.glob("*/key"))]

    def sweep(self, keep: Sequence[ProcessKey]) -> None:
        """Removes the logs of the processes that stopped longest ago, to bound disk usage."""
        kept = {directory_name(key) for key in keep}
        gone = [path for path in self.root.glob("*") if path.name not in kept] if self.root.is_dir() else []
        gone.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in gone[self.limits.keys :]:
            shutil.rmtree(path)


def directory_name(key: ProcessKey) -> str:
    """Readable and unique: keys may contain slashes and may differ only in replaced characters."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", key)[:60].lstrip(".")
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def log_record(line: LogLine) -> LogRecord:
    at = datetime.fromtimestamp(line.at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return LogRecord(timestamp=at.replace("+00:00", "Z"), stream=line.stream, text=line.text)
