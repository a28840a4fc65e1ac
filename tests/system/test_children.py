"""How parts of `corral up` are started."""

import subprocess
from pathlib import Path

from corral.system.children import python_command


def test_modules_in_the_directory_somebody_stands_in_are_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('a stranger')")
    done = subprocess.run(python_command("--version"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("corral, version"), done.stderr
