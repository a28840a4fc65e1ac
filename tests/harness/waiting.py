"""Waiting for a condition, bounded. Nothing here assumes how long something takes, only how long is too long."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

# Limits are given for an ordinary machine; one that is slow and shared is to pass, too.
PATIENCE = 4.0


def wait_until(condition: Callable[[], T | None], *, what: str, within_s: float = 20.0, every_s: float = 0.05) -> T:
    """The first true answer. An exception from `condition` counts as not yet, and is told at the end."""
    deadline = time.monotonic() + within_s * PATIENCE
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = condition()
            if last:
                return last
        except Exception as error:
            last = error
        time.sleep(every_s)
    raise AssertionError(f"not within {within_s * PATIENCE:g} s: {what}; last seen: {last!r}")


async def wait_until_async(
    condition: Callable[[], Awaitable[T | None]], *, what: str, within_s: float = 20.0, every_s: float = 0.02
) -> T:
    deadline = time.monotonic() + within_s * PATIENCE
    last: object = None
    while time.monotonic() < deadline:
        last = await condition()
        if last:
            return last
        await asyncio.sleep(every_s)
    raise AssertionError(f"not within {within_s * PATIENCE:g} s: {what}; last seen: {last!r}")


async def until(condition: Callable[[], object], what: str, within_s: float = 20.0) -> None:
    """As above, for a condition that needs no waiting itself."""

    async def look() -> object:
        return condition() or None

    await wait_until_async(look, what=what, within_s=within_s)


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
