"""Ctrl-C pressed again while a program is ending already."""

import signal

EXIT_INTERRUPTED = 130


def ignore_interrupts() -> None:
    """From here on. What is left is short, and a traceback would be all that a second Ctrl-C could add."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a handler of our own would not last through the interpreter's end
