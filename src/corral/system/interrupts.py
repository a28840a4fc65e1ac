"""Ctrl-C. Presses while an earlier one is handled are merged with it."""

import signal
import time
from collections.abc import Callable
from types import FrameType

EXIT_INTERRUPTED = 130
HANDLED_WITHIN_S = 3.0
"""After this time an interrupt counts as handled (or lost), and the next one takes effect again."""


class MergingHandler:
    """A SIGINT handler that acts on the first signal and ignores others for a while, or until `listen_again`."""

    def __init__(self, act: Callable[[], None], *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._act = act
        self._monotonic_s = monotonic_s
        self._ignore_until_s = float("-inf")

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now_s = self._monotonic_s()
        if now_s < self._ignore_until_s:
            return
        self._ignore_until_s = now_s + HANDLED_WITHIN_S
        self._act()

    def listen_again(self) -> None:
        self._ignore_until_s = float("-inf")


def _raise() -> None:
    raise KeyboardInterrupt


def hear_interrupts() -> None:
    """Makes the first interrupt raise `KeyboardInterrupt`. A program started with SIGINT ignored keeps ignoring it."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler):
        signal.signal(signal.SIGINT, MergingHandler(_raise))


def hear_next_interrupt() -> None:
    """Marks the last interrupt as handled, so that the next one takes effect immediately."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, MergingHandler):
        handler.listen_again()


def ignore_interrupts() -> None:
    """Ignores Ctrl-C from here on: the program is about to end, and an interrupt would only print a traceback."""
    # SIG_IGN, because a Python handler does not last through the interpreter's shutdown. The signal is blocked while
    # handlers are replaced, because without one the interpreter reports an error.
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
