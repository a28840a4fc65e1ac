"""Ports for workers under test: below the ephemeral range, above what workers take by themselves, and apart from those
of other test processes, of other runs on this machine too. Each taker gets a block of its own: the ports of the test
before still hold closed connections, which a worker would skip."""

import fcntl
import os
import tempfile
from functools import cache
from pathlib import Path

from harness.waiting import is_listening

SLOT = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
_SPAN = 2000
_UNIT = 10
_FIRST = 24000 + _SPAN * SLOT
_taken = os.getpid() * 100 % _SPAN


def take_ports(count: int) -> int:
    """The first of `count` ports in a row. Where others have claimed all there are, any that nobody listens on."""
    global _taken
    size = -(-count // _UNIT) * _UNIT
    for is_mine in (_claim, lambda _unit: True):
        for _ in range(_SPAN // size):
            if _taken + size > _SPAN:
                _taken = 0
            first = _FIRST + _taken
            _taken += size
            if all(map(is_mine, range(first, first + size, _UNIT))) and not is_listening(first):
                return first
    raise AssertionError(f"every port from {_FIRST} to {_FIRST + _SPAN - 1} is in use")


@cache
def _claims() -> int:
    """A file of which each test process locks a byte for each of its units. Open until the process ends.

    One for each network namespace: their ports have nothing to do with one another."""
    network = os.stat("/proc/self/ns/net").st_ino
    return os.open(Path(tempfile.gettempdir()) / f"corral-test-ports-{network}", os.O_RDWR | os.O_CREAT, 0o666)


def _claim(unit: int) -> bool:
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, unit)
    except BlockingIOError:
        return False
    return True
