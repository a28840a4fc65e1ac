"""Small files, written by a child process in batches.

Creating a file is four short system calls. In a process whose other threads fetch, hash and inflate, each of them ends
with waiting for the interpreter's lock; tens of thousands of files then take longer than everything else together. The
child has no other threads. It is told no paths: a directory is handed over as the descriptor that was walked to here.
"""

import marshal
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import DiskFault
from corral.artifacts.unpack.small_files_child import ANSWER, HEAD, MOST_DIRECTORIES

BATCH_FILES = 32  # a few hundred microseconds; then other threads get the interpreter's lock
BATCH_BYTES = 256 * 1024
BATCHES_AHEAD = 16
CHANNEL_BYTES = 1 << 20
END_WITHIN_S = 10.0
_CHILD_ENDED = "The process that writes small files ended unexpectedly. Try again."

_Parts = tuple[str, ...]


class SmallFileFailed(Exception):
    """One file could not be created."""

    def __init__(self, parts: _Parts, cause: OSError) -> None:
        super().__init__(f"{'/'.join(parts)}: {cause}")
        self.parts = parts
        self.cause = cause


class SmallFiles:
    """Takes files and writes them soon; `settle` waits for all of them. Used by one thread."""

    def __init__(self, cancel: CancelToken) -> None:
        self._cancel = cancel
        ours, theirs = socket.socketpair()
        self._channel = ours
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHANNEL_BYTES)
        with theirs:
            script = Path(__file__).with_name("small_files_child.py")
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(script), str(os.getpid())],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C at a terminal is for us to answer
                )
            except OSError:
                ours.close()
                raise
        self._sent: list[list[_Parts]] = []
        self._start_batch()

    def _start_batch(self) -> None:
        self._files: list[tuple[int, bytes, int, int, bytes]] = []
        self._names: list[_Parts] = []
        self._directories: list[int] = []
        self._directory: _Parts | None = None
        self._bytes = 0

    def add(self, parts: _Parts, parent: int, *, mode: int, mtime_ns: int, data: bytes) -> None:
        """Adds a file of the open directory `parent`, which may be closed afterwards."""
        if parts[:-1] != self._directory:
            if len(self._directories) == MOST_DIRECTORIES:
                self._send()
            self._directories.append(os.dup(parent))
            self._directory = parts[:-1]
        self._files.append((len(self._directories) - 1, os.fsencode(parts[-1]), mode, mtime_ns, data))
        self._names.append(parts)
        self._bytes += len(data)
        if len(self._files) == BATCH_FILES or self._bytes >= BATCH_BYTES:
            self._send()

    def settle(self) -> None:
        """Waits until every file is written. Raises for the first that failed."""
        self._send()
        while self._sent:
            self._cancel.check()
            self._hear()

    def close(self) -> None:
        """Ends the child, immediately if it has unfinished work."""
        if self._sent or self._files:
            self._process.kill()
        self._channel.close()
        for descriptor in self._directories:
            os.close(descriptor)
        self._start_batch()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_WITHIN_S)
            return
        self._process.kill()
        self._process.wait()

    def _send(self) -> None:
        if not self._files:
            return
        if len(self._sent) == BATCHES_AHEAD:
            self._hear()
        body = marshal.dumps(self._files)
        try:
            socket.send_fds(self._channel, [HEAD.pack(len(body))], self._directories)
            self._channel.sendall(body)
        except OSError as error:
            raise DiskFault(_CHILD_ENDED) from error
        for descriptor in self._directories:
            os.close(descriptor)
        self._sent.append(self._names)
        self._start_batch()

    def _hear(self) -> None:
        try:
            answer = self._channel.recv(ANSWER.size, socket.MSG_WAITALL)
        except OSError as error:
            raise DiskFault(_CHILD_ENDED) from error
        if len(answer) < ANSWER.size:
            raise DiskFault(_CHILD_ENDED)
        number, position = ANSWER.unpack(answer)
        if number:
            raise SmallFileFailed(self._sent[0][position], OSError(number, os.strerror(number)))
        del self._sent[0]
