"""Secrets in a data directory that is open to everyone are private (L3)."""

import stat
from pathlib import Path

from harness.frontend import Frontend
from harness.nats import Nats


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def test_other_users_read_neither_store_nor_keys(tmp_path: Path, nats: Nats) -> None:
    data = tmp_path / "frontend"
    for directory in (data, data / "keys", data / "artifacts"):
        directory.mkdir(mode=0o755)
    for name in ("corral.db", "corral.db-wal", "corral.db-shm"):
        (data / name).touch(mode=0o644)
    frontend = Frontend(tmp_path, nats)
    try:
        frontend.register(name="one")
        files = [path for path in data.iterdir() if path.name.startswith("corral.db")]
        assert {path.name: mode(path) for path in files} == {path.name: "600" for path in files}
        assert (mode(data / "keys"), mode(data / "artifacts")) == ("700", "700")
        assert mode(data) == "755", "an administrator's choice"
        assert "readable_by_others" in frontend.program.output()
        assert f"chmod 700 {data}" in frontend.program.output()
    finally:
        assert frontend.program.stop() == 0
