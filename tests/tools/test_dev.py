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
sys.exit(dev.test_all(dev.ROOT))
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


def ran(tmp_path: Path) -> list[str]:
    return (tmp_path / "ran").read_text().split()


def small_test(tmp_path: Path, name: str, condition: str) -> str:
    note = tmp_path / "ran"
    return (
        f"def test_{name}():\n"
        f"    with open({str(note)!r}, 'a') as note: note.write('{name}\\n')\n"
        f"    times = open({str(note)!r}).read().split().count('{name}')\n"
        f"    assert {condition}\n"
    )


def test_what_failed_beside_others_and_passes_alone_is_named_and_lets_the_run_pass(tmp_path: Path) -> None:
    body = small_test(tmp_path, "steady", "True") + small_test(tmp_path, "unsteady", "times == 2")
    code, said = run_all(tmp_path, body)
    assert code == 0, said
    assert sorted(ran(tmp_path)) == ["steady", "unsteady", "unsteady"]
    assert "UNSTEADY" in said
    assert "assert 1 == 2" in said  # how it failed is not lost


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    code, said = run_all(tmp_path, small_test(tmp_path, "broken", "times == 0"))
    assert code == 1, said
    assert ran(tmp_path) == ["broken", "broken"]
    assert "UNSTEADY" not in said


def test_many_failures_are_not_tried_again(tmp_path: Path) -> None:
    count = 6
    body = "".join(small_test(tmp_path, f"unsteady_{number}", "times == 2") for number in range(count))
    code, said = run_all(tmp_path, body)
    assert code == 1, said
    assert len(ran(tmp_path)) == count
