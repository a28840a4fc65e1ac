"""How slow this machine is while a test runs. What the product promises in seconds it promises on an ordinary machine
with an ordinary disk; a slow or busy one is given as much longer as a fixed piece of work takes longer there."""

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

# What one piece takes on two ordinary cores with nobody else about, generously: 3 ms of computing, or that and a flush.
COMPUTING_S, FLUSHING_S = 0.006, 0.02
MOST_TIMES = 12.0
_EVERY_S = 0.05


class Yardstick:
    """Works beside the test, in a process of its own. With a directory, a flush to its disk is a part of the work."""

    def __init__(self, directory: Path | None = None) -> None:
        self._file = directory / f".yardstick.{os.getpid()}" if directory else None
        self._pieces_s: list[float] = []

    def __enter__(self) -> Self:
        command = [sys.executable, "-I", "-S", __file__, str(self._file or "")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told, _ = self._process.communicate()
        self._pieces_s = [one for (one,) in struct.iter_unpack("d", told)]
        if self._file:
            self._file.unlink(missing_ok=True)

    @property
    def times(self) -> float:
        """How many times slower than an ordinary machine, on average."""
        mean_s = sum(self._pieces_s) / len(self._pieces_s)
        return min(MOST_TIMES, max(1.0, mean_s / (FLUSHING_S if self._file else COMPUTING_S)))

    def allows_s(self, promised_s: float) -> float:
        """A pause that held up one piece may have held up what was measured, too."""
        return promised_s * self.times + max(self._pieces_s)


@contextmanager
def promised(what: str, *, within_s: float, directory: Path | None = None) -> Iterator[None]:
    """What is done here took no longer than was promised, on a machine like this."""
    with Yardstick(directory) as yardstick:
        began_s = time.monotonic()
        yield
        took_s = time.monotonic() - began_s
    print(f"{what}: {took_s:.2f} s, on a machine {yardstick.times:.1f} times as slow as an ordinary one")
    assert took_s < yardstick.allows_s(within_s), f"{what} took {took_s:.2f} s"


def _work(path: str) -> None:
    sum(range(150_000))
    if path:
        with open(path, "wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())


def _measure(path: str) -> None:
    while True:
        began_s = time.monotonic()
        _work(path)
        os.write(1, struct.pack("d", time.monotonic() - began_s))
        if select.select([0], [], [], _EVERY_S)[0]:
            return


if __name__ == "__main__":
    _measure(sys.argv[1])
