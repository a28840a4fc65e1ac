"""Both databases, one by one, migrated, with a clock that tests move."""

from pathlib import Path

import pytest

from harness.databases import Rig, kind, rig, stores
from harness.postgres import Postgres

__all__ = ["kind", "rig", "stores"]


@pytest.fixture(scope="session")
def shared_database(postgres: Postgres) -> str:
    postgres.create("shared")
    return "shared"


@pytest.fixture
def unopened(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Rig:
    if kind == "sqlite":
        return Rig(kind, path=tmp_path / "corral.db", server=None)
    return Rig(
        kind,
        path=tmp_path,
        server=request.getfixturevalue("postgres"),
        within=request.getfixturevalue("shared_database"),
    )
