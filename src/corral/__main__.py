import signal

# While modules are imported, Ctrl-C ends the process at once: a traceback would be all that Python adds to it.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from corral.cli.main import main

main()
