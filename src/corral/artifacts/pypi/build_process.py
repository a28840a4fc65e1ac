"""One build in a child process: own session, clean environment, limited time and output. Its whole process group is
gone afterwards."""

import os
import selectors
import signal
import ssl
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corral.artifacts.cancel import SLICE_S, CancelToken
from corral.artifacts.errors import disk_errors
from corral.system import Clock

OUTPUT_BYTES = 64 * 1024
READ_BYTES = 16 * 1024
_SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_EARLIEST_ZIP_TIME_S = 315_532_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    exit_code: int | None
    """None after a timeout."""
    output: str
    """The end of its output."""


def build_environment(home: Path, temporary: Path) -> dict[str, str]:
    """A new environment, not a filtered copy: a list of secrets to leave out would never be complete."""
    trusted = ssl.get_default_verify_paths()
    certificates = trusted.cafile or trusted.capath
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), *_SYSTEM_PATH)),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "PIP_CONFIG_FILE": os.devnull,  # pip's own configuration may name other indexes, with logins
        # Those our own client trusts; pip would take the ones it brings along, and a private index would be a stranger.
        **({"PIP_CERT": certificates} if certificates else {}),
        "SOURCE_DATE_EPOCH": str(_EARLIEST_ZIP_TIME_S),  # so that the same source gives the same wheel where it can
    }


def run_build(
    command: Sequence[str],
    *,
    environment: dict[str, str],
    directory: Path,
    limit_s: float,
    clock: Clock,
    cancel: CancelToken,
) -> Finished:
    """Runs the command to its end. A cancel or timeout kills its whole process group."""
    cancel.check()
    with disk_errors("starting a build"):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    if process.stdout is None:
        raise AssertionError("the output was asked for as a pipe")
    until_s = clock.monotonic_s() + limit_s
    with process.stdout as pipe, selectors.DefaultSelector() as arrivals:
        os.set_blocking(pipe.fileno(), False)
        arrivals.register(pipe, selectors.EVENT_READ)
        tail = bytearray()
        try:
            while process.poll() is None and clock.monotonic_s() < until_s:
                cancel.check()
                arrivals.select(SLICE_S)
                if not _drain(pipe.fileno(), tail):
                    # The pipe is closed, so there is nothing left to select on; the end itself is.
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(SLICE_S)
            exit_code = process.poll()
        finally:
            # After an orderly end too: a helper that a build left running would write into directories being removed.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _drain(pipe.fileno(), tail)
    return Finished(exit_code=exit_code, output=tail.decode("utf-8", "replace"))


def _drain(descriptor: int, tail: bytearray) -> bool:
    """Reads what is available, at most a pipe's capacity, and keeps its end. False at the end of the output."""
    for _ in range(OUTPUT_BYTES // READ_BYTES):
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        tail += chunk
        del tail[:-OUTPUT_BYTES]
    return True
