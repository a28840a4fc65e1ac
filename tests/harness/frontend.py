"""One real frontend process, on SQLite."""

from pathlib import Path
from typing import Any

from harness.nats import Nats
from harness.ports import free_port
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import wait_until

TOKEN = "test-registration-token"


class Frontend:
    def __init__(self, directory: Path, nats: Nats, *flags: str, **environment: str) -> None:
        self.data = directory / "frontend"
        self.nats = nats
        self.url = f"http://127.0.0.1:{free_port()}"
        self.program = Program(
            "frontend", "--data-dir", str(self.data), "--listen", self.url.removeprefix("http://"),
            "--heartbeat-interval", "0.5", "--suspect-after", "2", "--offline-after", "4", "--health-interval", "0.5",
            *flags, log=directory / "log",
            environment=clean_environment(**nats.secrets(), CORRAL_REGISTRATION_TOKEN=TOKEN, **environment),
        )  # fmt: skip
        wait_until(lambda: call("GET", f"{self.url}/readyz").status == 200, what="ready", within_s=30)
        self.admin = Admin(self.url, (self.data / "keys" / "admin.key").read_text().strip())

    def register(self, *, bearer: str | None = TOKEN, **fields: Any) -> Any:
        body = {"name": "w", "address": "127.0.0.1:50051", "http_address": "127.0.0.1:50050", "token": TOKEN, **fields}
        body = {key: value for key, value in body.items() if value is not None}
        return call("POST", f"{self.url}/api/node/register", key=bearer, body=body)
