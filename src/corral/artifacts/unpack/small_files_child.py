"""The child of `small_files.py`. It creates files in directories whose descriptors it is handed, and does nothing else.

Run as a script and without Corral's modules, so that it is at work after a few hundredths of a second.
"""

import ctypes
import marshal
import os
import signal
import socket
import struct
import sys

HEAD = struct.Struct("<Q")  # how long the batch after it is
ANSWER = struct.Struct("<iI")  # an error number, or 0; and which file of the batch it was
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_DIRECTORIES = 64
_PR_SET_PDEATHSIG = 1


def main() -> None:
    _end_with_parent(int(sys.argv[1]))
    os.umask(0)
    answer = (0, 0)
    with socket.socket(fileno=0) as channel:
        while batch := _receive(channel):
            if answer[0] == 0:  # after a failure nothing more is written, and the first one is what is told
                answer = _write(*batch)
            for descriptor in batch[1]:
                os.close(descriptor)
            channel.sendall(ANSWER.pack(*answer))


def _end_with_parent(parent: int) -> None:
    """The child dies with its parent. The next process sweeps what it left unfinished."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _receive(channel: socket.socket) -> tuple[list[tuple[int, bytes, int, int, bytes]], list[int]] | None:
    head, descriptors, _, _ = socket.recv_fds(channel, HEAD.size, MOST_DIRECTORIES)
    if len(head) < HEAD.size:
        return None
    body = bytearray(HEAD.unpack(head)[0])
    view = memoryview(body)
    while view:
        count = channel.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return marshal.loads(body), descriptors  # noqa: S302  from the process that started this one


def _write(files: list[tuple[int, bytes, int, int, bytes]], directories: list[int]) -> tuple[int, int]:
    for position, (directory, name, mode, mtime_ns, data) in enumerate(files):
        try:
            descriptor = os.open(name, CREATE_FLAGS, mode, dir_fd=directories[directory])
            try:
                written = os.write(descriptor, data)
                while written < len(data):
                    written += os.write(descriptor, data[written:])
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            finally:
                os.close(descriptor)
        except OSError as error:
            return error.errno or -1, position
    return 0, 0


if __name__ == "__main__":
    main()
