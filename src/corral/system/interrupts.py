"""Ctrl-C. Presses that come while an earlier one is handled mean the same: they are merged with it."""

import signal
import time
from collections.abc import Callable
from types import FrameType

EXIT_INTERRUPTED = 130
HANDLED_WITHIN_S = 3.0
"""By then an interrupt is dealt with, or got lost or stuck on its way; the next one is acted on again."""


class MergingHandler:
    """Handles SIGINT: acts on the first and drops those that follow, for a while or until `listen_again`."""

    def __init__(self, act: Callable[[], None], *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._act = act
        self._monotonic_s = monotonic_s
        self._deaf_until_s = float("-inf")

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now_s = self._monotonic_s()
        if now_s < self._deaf_until_s:
            return
        self._deaf_until_s = now_s + HANDLED_WITHIN_S
        self._act()

    def listen_again(self) -> None:
        self._deaf_until_s = float("-inf")


def _raise() -> None:
    raise KeyboardInterrupt


def hear_interrupts() -> None:
    """The first raises `KeyboardInterrupt`, once. A program that was started to ignore Ctrl-C goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler):
        signal.signal(signal.SIGINT, MergingHandler(_raise))


def hear_next_interrupt() -> None:
    """The last one is dealt with, and the program goes on: the next is another wish."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, MergingHandler):
        handler.listen_again()


def ignore_interrupts() -> None:
    """From here on. What is left is short, and a traceback would be all that one more Ctrl-C could add."""
    # SIG_IGN, because a handler of our own does not last through the interpreter's end. The signal is blocked while
    # handlers are exchanged: it would have none, and the interpreter would complain.
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
