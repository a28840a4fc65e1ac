"""A running `corral up`, and workers that join it."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from harness.ports import free_port
from harness.programs import Admin, Program, clean_environment

FROM_A_CLONE = {
    "CORRAL_PROGRAM": "./corral",
    "CORRAL_BACKEND_GALLERIES": "",
    "CORRAL_MODEL_GALLERIES": '[{"name": "lost", "url": "http://127.0.0.1:1/index.yaml"}]',
}
"""As started from a clone, with a gallery that nobody can read."""


class Up:
    def __init__(self, directory: Path, *flags: str, log: Path | None = None, **environment: str) -> None:
        self.directory, self.data = directory, directory / "data"
        self.port, self.bus_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.flags = (
            "--data-dir", str(self.data), "--listen", f"127.0.0.1:{self.port}", "--bus-port", str(self.bus_port),
            "--name", "first", "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4",
            "--health-interval", "0.5", *flags,
        )  # fmt: skip
        self.log = log or directory / "up.log"
        self._environment = clean_environment(**environment)
        self._workers: list[Program] = []
        self.program = self._start(self.log)

    def _start(self, log: Path) -> Program:
        return Program("up", *self.flags, log=log, environment=self._environment)

    def start(self) -> None:
        """Again, after `stop`."""
        self.program = self._start(self.directory / f"up-{uuid.uuid4().hex}.log")
        self.wait_ready()

    def stop(self) -> None:
        self.program.stop()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.stop()

    def wait_ready(self) -> Admin:
        self.program.wait_for_output("Ctrl-C stops everything.", within_s=60)
        return self.admin

    @property
    def admin(self) -> Admin:
        return Admin(self.url, (self.data / "keys" / "admin.key").read_text().strip())

    def start_worker(self, name: str, join_command: str) -> Program:
        """Runs the command the UI shows, with what a second worker on one machine needs beside it."""
        program, *arguments = join_command.split()
        assert program == "./corral"
        directory = self.directory / f"worker-{name}"
        arguments += ["--data-dir", str(directory), "--name", name, "--port", str(free_port())]
        worker = Program(*arguments, log=self.directory / f"{name}.log")
        self._workers.append(worker)
        return worker

    def output_count(self) -> int:
        return self.program.output().count("Ctrl-C stops everything.")

    def is_small(self) -> bool:
        """Whether everything is ready and the parent has continued as a supervisor."""
        return "corral.roles.up" in psutil.Process(self.program.pid).cmdline()

    def children(self) -> dict[str, psutil.Process]:
        found = {}
        for child in psutil.Process(self.program.pid).children():
            line = " ".join(child.cmdline())
            for name in ("nats-server", "corral frontend", "corral worker"):
                if name in line:
                    found[name.rpartition(" ")[2]] = child
        return found

    def processes(self) -> list[int]:
        """Every process that works on this data directory."""
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if any(str(self.data) in part for part in process.info["cmdline"] or ())
        ]


@contextmanager
def running_up(directory: Path) -> Iterator[Up]:
    """For the browser: with a node `home`, as started from a clone."""
    up = Up(
        directory, "--name", "home", "--heartbeat-interval", "1s", "--suspect-after", "30s", "--offline-after", "60s",
        "--health-interval", "5s", log=None, **FROM_A_CLONE,
    )  # fmt: skip
    try:
        up.wait_ready()
        yield up
    finally:
        up.close()
