"""Ctrl-C: raised as KeyboardInterrupt while a program runs, and not heard again while it is ending."""

import signal

EXIT_INTERRUPTED = 130


def hear_interrupts() -> None:
    """Unless whoever started the program had it ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_interrupts() -> None:
    """From here on. What is left is short, and a traceback would be all that a second Ctrl-C could add."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a handler of our own would not last through the interpreter's end
