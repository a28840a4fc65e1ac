"""What ./corral finds on a machine before it sets itself up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = "import sys; sys.path.insert(0, sys.argv[1]); import bootstrap; print(bootstrap.has_node())"


@pytest.mark.parametrize(
    ("version", "fits"),
    [("v20.18.0", False), ("v20.19.4", True), ("v21.7.3", False), ("v22.11.0", False), ("v22.12.0", True),
     ("v24.1.0", True), ("something else", False)],
)  # fmt: skip
def test_a_node_counts_only_if_the_build_of_the_web_ui_takes_it(tmp_path: Path, version: str, fits: bool) -> None:
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(ROOT / "tools")], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == str(fits), done.stderr
