"""A herd of real processes, on each database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.databases import BOTH
from harness.herd import Herd
from harness.nats import Nats


@pytest.fixture(params=BOTH)
def herd(request: pytest.FixtureRequest, tmp_path: Path, nats: Nats) -> Iterator[Herd]:
    store = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    running = Herd(tmp_path, nats, store)
    yield running
    running.stop()
