import subprocess
import sys

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
def test_an_exception_is_logged_with_its_place_and_without_what_was_in_its_variables(format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH.replace("{format}", format)], capture_output=True, text=True, timeout=30
    )
    assert "it broke" in done.stderr
    assert "in work" in done.stderr
    assert "canary-local" not in done.stderr
    assert "canary-argument" not in done.stderr
    assert "canary-field" not in done.stderr
