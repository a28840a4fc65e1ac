"""What ./dev test makes of failures, with real runs of pytest on a few small tests."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = """
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
dev = SourceFileLoader("dev", sys.argv[1]).load_module()
dev.ROOT = Path(sys.argv[2])
sys.exit(dev.pytest(dev.ALL_TESTS))
"""


def run_all(tmp_path: Path, body: str) -> tuple[int, str]:
    (tmp_path / "test_small.py").write_text(body)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, str(ROOT / "dev"), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_failure_fails_the_run_and_nothing_is_run_twice(tmp_path: Path) -> None:
    note = tmp_path / "ran"
    body = (
        "def test_unsteady():\n"
        f"    with open({str(note)!r}, 'a+') as note:\n"
        "        note.write('once\\n')\n"
        "        note.seek(0)\n"
        "        assert len(note.readlines()) == 2\n"
    )
    code, said = run_all(tmp_path, body)
    assert code == 1, said
    assert note.read_text().split() == ["once"]
    assert "assert 1 == 2" in said
