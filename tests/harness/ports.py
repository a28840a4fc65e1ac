"""Ports for workers under test: below the ephemeral range, above what workers take by themselves, and apart from those
of other test processes. Each taker gets a block of its own: the ports of the test before still hold closed
connections, which a worker would skip."""

import os

from harness.waiting import is_listening

SLOT = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
_SPAN = 2000
_FIRST = 24000 + _SPAN * SLOT
# Begun somewhere else by each run, because several may go on at once.
_taken = os.getpid() * 100 % _SPAN


def take_ports(count: int) -> int:
    """The first of `count` ports in a row."""
    global _taken
    for _ in range(_SPAN // count):
        if _taken + count > _SPAN:
            _taken = 0
        first = _FIRST + _taken
        _taken += count
        if not is_listening(first):
            return first
    raise AssertionError(f"every port from {_FIRST} to {_FIRST + _SPAN - 1} is in use")
