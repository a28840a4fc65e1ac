from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.file_server import RunningFileServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningFileServer]:
    server = RunningFileServer(tmp_path)
    yield server
    server.stop()
