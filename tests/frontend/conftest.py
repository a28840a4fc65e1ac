"""One real frontend per module, on SQLite and a bus of its own."""

from collections.abc import Iterator

import pytest

from harness.frontend import Frontend
from harness.nats import Nats


@pytest.fixture(scope="module")
def nats_for_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    running = Frontend(tmp_path_factory.mktemp("frontend"), nats_for_module)
    yield running
    assert running.program.stop() == 0


@pytest.fixture(scope="module")
def open_frontend(tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats) -> Iterator[Frontend]:
    """A frontend that approves nodes automatically."""
    running = Frontend(tmp_path_factory.mktemp("open-frontend"), nats_for_module, "--auto-approve")
    yield running
    assert running.program.stop() == 0
