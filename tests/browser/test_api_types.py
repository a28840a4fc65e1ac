"""The UI's API types are those of the API it talks to."""

import os
import subprocess
from pathlib import Path
from typing import Any

from harness.up import Up

UI = Path(__file__).parents[2] / "ui"


def test_the_generated_types_are_current(corral: Up, node_tools: Any) -> None:
    done = subprocess.run(
        [node_tools.node, "scripts/api-types.mjs", "--check"],
        cwd=UI,
        env={**os.environ, "CORRAL_URL": corral.url, "CORRAL_API_KEY": corral.admin.key},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
