"""Memory settings of long-running processes."""

import ctypes
import sys

_M_ARENA_MAX = -8


def share_malloc_arenas(count: int = 1) -> None:
    """Limits the number of glibc's malloc arenas. By default each thread has its own, which keeps freed pages; our
    threads allocate little. Call before the first thread starts. Does nothing with other allocators."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, count)
