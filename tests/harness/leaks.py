"""What a test file leaves behind: threads, child processes and open descriptors that were not there before it."""

import gc
import os
import threading
import time
from dataclasses import dataclass, field

import psutil

SETTLE_WITHIN_S = 5.0
"""Threads and processes that were told to end take a moment."""
SPARE_DESCRIPTORS = 8
"""Of libraries that open one for good at first use: random numbers, an event loop's own."""


@dataclass(slots=True)
class Held:
    """By this process, at one moment."""

    threads: set[int] = field(default_factory=set)
    children: set[int] = field(default_factory=set)
    descriptors: int = 0


def look() -> Held:
    return Held(
        threads={thread.ident or 0 for thread in threading.enumerate()},
        children={child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE},
        descriptors=len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
    )


def find_leaks(before: Held) -> list[str]:
    """In words. What is on its way out is waited for."""
    gc.collect()  # what nobody holds complains here, in the file that lost it, and not in another
    until_s = time.monotonic() + SETTLE_WITHIN_S
    while (left := _compare(before, look())) and time.monotonic() < until_s:
        gc.collect()
        time.sleep(0.05)
    return left


def _compare(before: Held, now: Held) -> list[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    left = [f"thread {names.get(one, one)}" for one in sorted(now.threads - before.threads) if one in names]
    for pid in sorted(now.children - before.children):
        try:
            left.append(f"process {pid}: {' '.join(psutil.Process(pid).cmdline())[:200]}")
        except psutil.Error:
            continue
    if now.descriptors > before.descriptors + SPARE_DESCRIPTORS:
        left.append(f"{now.descriptors - before.descriptors} open descriptors")
    return left
