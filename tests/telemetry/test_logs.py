"""Logs contain no secrets, and a full disk ends no role."""

import subprocess
import sys
from pathlib import Path

import pytest

CRASH = """
import structlog
from corral.telemetry.logs import configure_logs
configure_logs(level="info", format="{format}", role="worker")
def work(credential):
    join_token = "canary-" + "local"
    raise OSError("it broke")
try:
    work("canary-" + "argument")
except OSError:
    structlog.get_logger().exception("loop.crashed", join_token="canary-" + "field")
"""


@pytest.mark.parametrize("format", ["console", "json"])
def test_an_exception_is_logged_with_its_place_and_without_the_values_of_variables(format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH.replace("{format}", format)], capture_output=True, text=True, timeout=30
    )
    assert "it broke" in done.stderr
    assert "in work" in done.stderr
    assert "canary-local" not in done.stderr
    assert "canary-argument" not in done.stderr
    assert "canary-field" not in done.stderr


FULL = """
import resource, signal, structlog
from corral.telemetry.logs import configure_logs
configure_logs(level="info", format=FORMAT, role="test")
log = structlog.get_logger()
log.info("before")
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
for number in range(100):
    log.info("meanwhile", number=number, padding="x" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.info("after")
log.info("last")
"""


@pytest.mark.parametrize("kind", ["console", "json"])
def test_lines_that_cannot_be_written_are_counted_and_the_program_goes_on(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        program = FULL.replace("FORMAT", repr(kind))
        done = subprocess.run([sys.executable, "-c", program], stderr=file, timeout=60)
    assert done.returncode == 0, path.read_text()
    lines = path.read_text().splitlines()
    assert "before" in lines[0]
    assert any("log.lines_lost" in line for line in lines)
    assert "after" in lines[-2]
    assert "last" in lines[-1]
