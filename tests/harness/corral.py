"""`corral up` in a directory of its own, and workers that join it."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.ports import free_port
from harness.programs import Admin, Program, clean_environment

SURROUNDINGS = {
    "CORRAL_PROGRAM": "./corral",
    "CORRAL_BACKEND_GALLERIES": "",
    "CORRAL_MODEL_GALLERIES": '[{"name": "lost", "url": "http://127.0.0.1:1/index.yaml"}]',
}
"""As started from a clone, with a gallery that nobody can read."""


class Corral:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{free_port()}"
        self._bus_port = free_port()
        self._up: Program | None = None
        self._workers: list[Program] = []

    def start(self) -> None:
        arguments = ["up", "--data-dir", str(self.directory / "up"), "--listen", self.url.removeprefix("http://")]
        arguments += ["--bus-port", str(self._bus_port), "--name", "home", "--heartbeat-interval", "1s"]
        log = self.directory / f"up-{uuid.uuid4().hex}.log"
        self._up = Program(*arguments, log=log, environment=clean_environment(**SURROUNDINGS))
        self._up.wait_for_output("Ready in", within_s=60)

    def stop(self) -> None:
        if self._up is not None:
            self._up.stop()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.stop()

    def start_worker(self, name: str, join_command: str) -> Program:
        """Runs the command the UI shows, with what a second worker on one machine needs beside it."""
        program, *arguments = join_command.split()
        assert program == "./corral"
        directory = self.directory / f"worker-{name}"
        arguments += ["--data-dir", str(directory), "--name", name, "--port", str(free_port())]
        worker = Program(*arguments, log=self.directory / f"{name}.log")
        self._workers.append(worker)
        return worker

    @property
    def admin(self) -> Admin:
        return Admin(self.url, (self.directory / "up" / "keys" / "admin.key").read_text().strip())


@contextmanager
def running_corral(directory: Path) -> Iterator[Corral]:
    corral = Corral(directory)
    try:
        corral.start()
        yield corral
    finally:
        corral.close()
