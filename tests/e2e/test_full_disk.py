"""`corral up` on a disk that fills up: said once, outlasted, and over when there is room again."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.programs import call, run_cli
from harness.up import Up
from harness.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)])
    if not mounted or mounted.returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> Path:
    path = place / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            return path


def test_a_full_disk_is_reported_outlasted_and_over_when_there_is_space(small_disk: Path, tmp_path: Path) -> None:
    up = Up(small_disk, log=tmp_path / "up.log", CORRAL_DISK_HEADROOM="0")
    try:
        admin = up.wait_ready()
        parts = {name: child.pid for name, child in up.children().items()}
        filler = fill(small_disk)
        wait_until(lambda: "is full" in up.program.output(), what="it says that the disk is full", within_s=15)
        made = run_cli("keys", "create", "--name", "x", "--data-dir", str(up.data))
        assert made.returncode != 0
        assert "Free space" in made.stderr
        wait_until(lambda: b"full" in call("GET", f"{up.url}/readyz").body, what="it is not ready, and why")
        filler.unlink()
        wait_until(lambda: "has free space again" in up.program.output(), what="it says that it is over", within_s=15)
        wait_until(lambda: call("GET", f"{up.url}/readyz").status == 200, what="ready again", within_s=30)
        admin.wait_for_status("first", "healthy")
        assert run_cli("keys", "create", "--name", "x", "--data-dir", str(up.data)).returncode == 0
        assert {name: child.pid for name, child in up.children().items()} == parts
    finally:
        assert up.program.stop() == 0
