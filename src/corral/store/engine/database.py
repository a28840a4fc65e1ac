"""The interface of both databases: transactions, and the schema.

SQL is written once, with `$1` parameters, and runs on both. A *body* is an async function that takes a `Tx` and awaits
nothing else: no lock, connection or transaction is ever held across network, disk or process work. SQLite rejects a
body that awaits anything else, so the tests on SQLite guard this rule for PostgreSQL too.

Times are milliseconds by the store's own clock, the SQL function `now_ms()`: leases, due times and liveness do not
depend on any host's clock.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from corral.core.backoff import Backoff
from corral.core.errors import Conflict

T = TypeVar("T")


class Row(Protocol):
    def __getitem__(self, column: str, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the values, in the order of the statement's columns."""
        ...


class Tx(Protocol):
    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]: ...

    async def fetch_one(self, sql: str, *args: Any) -> Row | None: ...

    async def execute(self, sql: str, *args: Any) -> int:
        """Return the number of rows changed."""
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
        """Where the database is, for messages: it contains no password."""
        ...

    async def read(self, body: Body[T]) -> T:
        """Run `body` on one snapshot. Raises Unavailable."""
        ...

    async def read_large(self, body: Body[T]) -> T:
        """As `read`, for statements that go through many rows: SQLite runs them beside the event loop."""
        ...

    async def write(self, body: Body[T]) -> T:
        """Run `body` in one transaction and commit it; retry after a conflict.

        Raises Unavailable (nothing was written) or OutcomeUnknown (the connection was lost during the commit)."""
        ...

    async def migrate(self, then: AfterMigration | None = None) -> None:
        """Bring the schema up to date. `then` runs in the same transaction, under the migration lock.

        Raises OutdatedSchema if the schema is of a version that cannot be migrated."""
        ...

    async def close(self) -> None: ...


class StoreConflict(Conflict):
    """The transaction conflicted with others in every attempt."""

    code = "store_conflict"
    retryable = True


CONFLICT_TRIES = 6


CONFLICT_RETRIES = Backoff(base_s=0.01, cap_s=0.5, jitter=1.0)
