"""Installs an image and kills itself, as `kill -9` would, just before its n-th filesystem call of one phase.

Reads one JSON command per line and forks for each, so that two hundred kills cost two hundred forks and one start-up.
The calls are counted by an audit hook: no line of the product knows that it is being watched.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from corral.artifacts.cancel import CancelToken
from corral.artifacts.oci.image import OciPlatform
from corral.artifacts.progress import Phase, ProgressMeter
from corral.artifacts.requests import BackendRequest
from corral.artifacts.wiring import build_installer
from corral.core.backends.build import BuildRef
from corral.core.transfer import TransferProgress
from corral.system import SystemClock, SystemIds
from harness.artifacts import fast_settings

WATCHED = ("open", "os.", "shutil.", "fcntl.")


class Fuse:
    def __init__(self, phase: str, at: int) -> None:
        self.phase = phase
        self.at = at
        self.count = 0
        self.lit = False
        self.lock = threading.RLock()  # reentrant: `os.kill` is an audited call itself

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.link" and self.phase == "switch":
            return
        if event == "os.rename":
            self._notice(str(arguments[0]), str(arguments[1]))
        if self.lit and event.startswith(WATCHED):
            self._burn()

    def _notice(self, source: str, target: str) -> None:
        """Renames mark the borders: partial to blob ends a verification, layer and version come into being."""
        if self.phase == "verify" and "/partial/" in source:
            self.lit = True
        if self.phase == "switch" and "/backends/" in target:
            self.lit = True

    def progress(self, progress: TransferProgress) -> None:
        if self.phase == "download" and progress.phase == Phase.DOWNLOADING.label:
            self.lit = True
            self._burn()

    def _burn(self) -> None:
        with self.lock:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


def run(command: dict[str, Any]) -> None:
    fuse = Fuse(command["phase"], command["at"])
    sys.addaudithook(fuse.hook)
    installer = build_installer(
        fast_settings(Path(command["data_dir"])),
        clock=SystemClock(),
        ids=SystemIds(),
        platform=OciPlatform(os="linux", architecture="amd64"),
    )
    if fuse.phase in ("extract", "rebuild"):
        fuse.lit = True
    meter = ProgressMeter(fuse.progress, SystemClock(), every_s=0.0)
    request = BackendRequest(build=BuildRef(name="demo", uris=(command["uri"],)))
    installer.install(request, CancelToken(), meter, force=fuse.phase == "rebuild")
    Path(command["data_dir"], "calls").write_text(str(fuse.count))


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            os.dup2(2, 1)  # log lines must not end up among the answers
            try:
                run(json.loads(line))
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
