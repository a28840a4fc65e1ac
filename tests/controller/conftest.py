"""Both databases and a real bus."""

import pytest

from bus.conftest import connect
from harness.databases import kind, rig, stores
from harness.postgres import Postgres
from store.conftest import unopened

__all__ = ["connect", "kind", "rig", "stores", "unopened"]


@pytest.fixture(scope="session")
def shared_database(postgres: Postgres) -> str:
    postgres.create("shared_by_controllers")
    return "shared_by_controllers"
