"""A LocalAI gRPC backend that runs, as a worker starts one."""

import os
import signal
import subprocess
from pathlib import Path

from harness.localai_backend import write_localai_backend
from harness.ports import free_port
from harness.waiting import wait_until


class RunningBackend:
    def __init__(self, directory: Path, *, token: str = "process-token", without: str = "", port: int = 0) -> None:
        self.directory = write_localai_backend(directory)
        self.token = token
        self.address = f"127.0.0.1:{port or free_port()}"
        self.log = directory / "log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(directory / "run.sh"), "--addr", self.address, "--without", without],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "LOCALAI_GRPC_AUTH_TOKEN": token},
                start_new_session=True,
            )
        wait_until(lambda: "serving" in self.output() or None, what=f"the backend serves\n{self.output()}", within_s=30)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
