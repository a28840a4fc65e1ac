"""The memory a long-lived process holds on to."""

import ctypes
import sys

_M_ARENA_MAX = -8


def share_malloc_arenas(count: int = 1) -> None:
    """glibc gives every thread an arena of its own, and none gives pages back; our threads wait more than they
    allocate. Must come before the first thread. Does nothing on systems with another allocator."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, count)
