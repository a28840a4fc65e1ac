"""The small layer both databases stand behind.

SQL is written once, with `$1` parameters, and runs on both. A *body* is an async function that is handed a `Tx` and
awaits nothing else: no lock, connection or transaction is ever held across network, disk or process work. On SQLite
a body that waits for anything but its transaction is refused, so the tests on SQLite guard this for PostgreSQL too.

Times are milliseconds by the store's own clock, through the SQL function `now_ms()`: leases, due times and liveness
do not depend on any host's clock.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from corral.core.errors import Conflict

T = TypeVar("T")


class Row(Protocol):
    def __getitem__(self, column: str, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]:
        """Its values, in the order in which the statement names them."""
        ...


class Tx(Protocol):
    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]: ...

    async def fetch_one(self, sql: str, *args: Any) -> Row | None: ...

    async def execute(self, sql: str, *args: Any) -> int:
        """Rows changed."""
        ...

    async def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...


Body = Callable[[Tx], Coroutine[Any, Any, T]]


AfterMigration = Callable[[Tx], Awaitable[object]]


class Database(Protocol):
    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        ...

    @property
    def location(self) -> str:
        """Fit for people: no password in it."""
        ...

    async def read(self, body: Body[T]) -> T:
        """Run `body` on one snapshot. Raises Unavailable."""
        ...

    async def write(self, body: Body[T]) -> T:
        """Run `body` in one transaction and commit it, again after a conflict.

        Raises Unavailable (nothing was written) or OutcomeUnknown (the connection went during the commit)."""
        ...

    async def migrate(self, then: AfterMigration | None = None) -> None:
        """`then` runs in the same transaction, under the lock that keeps other frontends from migrating."""
        ...

    async def close(self) -> None: ...


class StoreConflict(Conflict):
    """Two transactions met and this one lost, as often as we are willing to try."""

    code = "store_conflict"
    retryable = True


CONFLICT_TRIES = 6


def conflict_delay_s(attempt: int, *, draw: float) -> float:
    return draw * min(0.5, 0.01 * 2.0**attempt)
