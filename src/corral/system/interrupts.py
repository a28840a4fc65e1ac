"""Ctrl-C pressed again while a program is ending already."""

import signal

EXIT_INTERRUPTED = 130


def ignore_interrupts() -> None:
    """From here on. What is left is short, and a traceback would be all that a second Ctrl-C could add."""
    # Not SIG_IGN, which children would inherit.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
