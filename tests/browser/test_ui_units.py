"""The checks of the web UI: strict types, ESLint and Prettier, and its unit tests."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

UI = Path(__file__).parents[2] / "ui"


@pytest.mark.timeout(900)  # one program that keeps a core busy for more than a minute, beside all other tests
@pytest.mark.parametrize("script", ["check", "lint", "test"])
def test_npm_run(script: str, node_tools: Any) -> None:
    done = subprocess.run(
        [*node_tools.npm, "run", script],
        cwd=UI,
        env={**os.environ, "PATH": f"{node_tools.node.parent}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout
