"""Opening an SQLite database that others use."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from corral.core.errors import Unavailable
from corral.store.engine.sqlite import SqliteDatabase
from corral.system import SystemClock, SystemIds


@contextmanager
def written_by_another(path: Path) -> Iterator[sqlite3.Connection]:
    """A new database, not yet in write-ahead mode, in the middle of another process's transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN IMMEDIATE")
        yield other


class CommitsWhenAsked(SystemClock):
    """Ends the other transaction at the second look at the clock: after the first attempt."""

    def __init__(self, other: sqlite3.Connection) -> None:
        self._other, self._looks = other, 0

    def monotonic_s(self) -> float:
        self._looks += 1
        if self._looks == 2:
            self._other.execute("COMMIT")
        return super().monotonic_s()


async def test_a_process_that_writes_meanwhile_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "corral.db"
    with written_by_another(path) as other:
        database = SqliteDatabase(path, clock=CommitsWhenAsked(other), ids=SystemIds())
        await database.close()
    with closing(sqlite3.connect(path)) as after:
        assert after.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_one_that_never_ends_is_reported_in_time(tmp_path: Path) -> None:
    path = tmp_path / "corral.db"
    with written_by_another(path), pytest.raises(Unavailable, match="locked"):
        SqliteDatabase(path, clock=SystemClock(), ids=SystemIds(), locked_within_s=0.05)
