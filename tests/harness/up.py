"""A running `corral up`."""

from pathlib import Path

import psutil

from harness.ports import free_port
from harness.programs import Admin, Program, clean_environment


class Up:
    def __init__(self, directory: Path, *flags: str, log: Path | None = None, **environment: str) -> None:
        self.data = directory / "data"
        self.port, self.bus_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.flags = (
            "--data-dir", str(self.data), "--listen", f"127.0.0.1:{self.port}", "--bus-port", str(self.bus_port),
            "--name", "first", "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4",
            "--health-interval", "0.5", *flags,
        )  # fmt: skip
        self.log = log or directory / "up.log"
        self.program = Program("up", *self.flags, log=self.log, environment=clean_environment(**environment))

    def wait_ready(self) -> Admin:
        self.program.wait_for_output("Ctrl-C stops everything.", within_s=60)
        return self.admin

    @property
    def admin(self) -> Admin:
        return Admin(self.url, (self.data / "keys" / "admin.key").read_text().strip())

    def output_count(self) -> int:
        return self.program.output().count("Ctrl-C stops everything.")

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
