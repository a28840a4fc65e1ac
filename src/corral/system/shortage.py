"""Recognises errors that mean a lack of memory, threads, processes or descriptors."""

import errno
import threading

_SHORTAGES = frozenset((errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE))


def is_resource_shortage(error: Exception) -> bool:
    """Whether a later retry may succeed without a change to the request."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    return isinstance(error, MemoryError) or _is_from_thread_start(error)


def _is_from_thread_start(error: Exception) -> bool:
    """Python has no exception type for a thread that cannot be started: `Thread.start` raises RuntimeError."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_code if trace is not None else None
    return isinstance(error, RuntimeError) and raised_in is threading.Thread.start.__code__
