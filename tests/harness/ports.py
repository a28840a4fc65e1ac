"""Ports for what tests start: below the range from which the kernel takes ports for outgoing connections, which could
otherwise be given one between our look and the start; and apart from those of other test processes, of other runs on
this machine too."""

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness import leaks
from harness.waiting import is_listening

SLOTS = 6
SLOT = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % SLOTS
_UNIT = 10  # claimed together


@dataclass
class Block:
    """The ports of one test process. It begins somewhere in them and goes round: the ports of the test before still
    hold closed connections, which a worker would skip."""

    first: int
    span: int
    taken: int

    def take(self, count: int, *, claim: Callable[[int], bool] | None = None) -> int:
        """The first of `count` ports in a row. Where others have claimed all there are, any that nobody listens on."""
        step = min(count, _UNIT)
        for is_mine in (claim or _claim, lambda _unit: True):
            for turn in range(self.span // step):
                offset = (self.taken + turn * step) % self.span
                first = self.first + offset
                units = range(first - first % _UNIT, first + count, _UNIT)
                if offset + count <= self.span and all(map(is_mine, units)) and _is_free(first):
                    self.taken = offset + count  # the next caller gets others, also before somebody listens on these
                    return first
        raise AssertionError(f"every port from {self.first} to {self.first + self.span - 1} is in use")


def _block(first: int, last: int) -> Block:
    span = (last - first) // SLOTS // _UNIT * _UNIT
    return Block(first + span * SLOT, span, os.getpid() * 100 % span)


_SERVERS = _block(10000, 20000)
_WORKERS = _block(24000, 32760)  # above what workers take by themselves


def free_port() -> int:
    """For one server."""
    return _SERVERS.take(1)


def take_ports(count: int) -> int:
    """The first of `count` for the backends of one worker: whole units, so that two workers never share one."""
    return _WORKERS.take(-(-count // _UNIT) * _UNIT)


_REFUSED_BY_BROWSERS = 10080
"""The only port of these ranges that browsers refuse to open."""


def _is_free(port: int) -> bool:
    if port == _REFUSED_BY_BROWSERS:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return not is_listening(port)


@cache
def _claims() -> int:
    """A file of which each test process locks a byte for each of its units. Open until the process ends.

    One for each network namespace: their ports have nothing to do with one another."""
    network = os.stat("/proc/self/ns/net").st_ino
    with leaks.keeping():
        return os.open(Path(tempfile.gettempdir()) / f"corral-test-ports-{network}", os.O_RDWR | os.O_CREAT, 0o666)


def _claim(unit: int) -> bool:
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, unit)
    except BlockingIOError:
        return False
    return True
