"""Usage: requests and tokens by day, API key, model and node; never their content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from corral.core.access.calendar import DAY_MS, month_days
from corral.store.engine.database import Database, Tx
from corral.store.serving.batches import prune_writers, take_batch

RETENTION_DAYS = 400
DIMENSIONS = ("day", "key_id", "model", "node_id")


class UsageKey(NamedTuple):
    key_id: str
    """Empty if the frontend requires no key."""
    model: str
    node_id: str


@dataclass(frozen=True, slots=True)
class Used:
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(
            self.requests + other.requests, self.tokens_in + other.tokens_in, self.tokens_out + other.tokens_out
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """Summed over the dimensions that are None."""

    day: int | None = None
    """Days since 1970, by the store's clock."""
    key_id: str | None = None
    model: str | None = None
    node_id: str | None = None
    used: Used


@dataclass(frozen=True, slots=True)
class KeyTokens:
    """Tokens in and out by key."""

    now_ms: int
    today: Mapping[str, int]
    earlier: Mapping[str, int] | None
    """In this month, before today. None if it was not requested."""


class UsageStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, writer: str, batch: int, counts: Mapping[UsageKey, Used]) -> None:
        """Add a batch of counts. A writer numbers its batches, and a batch is counted once, so that a writer can repeat
        one whose outcome is unknown."""

        async def body(tx: Tx) -> None:
            if not await take_batch(tx, writer, batch):
                return
            # Sorted, so that two frontends cannot deadlock.
            await tx.execute_many(
                "INSERT INTO usage (day, key_id, model, node_id, requests, tokens_in, tokens_out)"
                " VALUES (now_ms() / 86400000, $1, $2, $3, $4, $5, $6)"
                " ON CONFLICT (day, key_id, model, node_id) DO UPDATE SET"
                " requests = usage.requests + excluded.requests,"
                " tokens_in = usage.tokens_in + excluded.tokens_in,"
                " tokens_out = usage.tokens_out + excluded.tokens_out",
                [(*key, counts[key].requests, counts[key].tokens_in, counts[key].tokens_out) for key in sorted(counts)],
            )

        await self._database.write(body)

    async def read(self, *, days: int, by: Sequence[str]) -> list[UsageRow]:
        """Usage of the last `days` days, including today. `by`: some of DIMENSIONS."""
        chosen = [name for name in DIMENSIONS if name in by]
        columns = "".join(f"{name}, " for name in chosen)
        ending = f" GROUP BY {', '.join(chosen)} ORDER BY {', '.join(chosen)}" if chosen else ""

        async def body(tx: Tx) -> list[UsageRow]:
            rows = await tx.fetch(
                f"SELECT {columns}CAST(sum(requests) AS BIGINT) AS requests,"  # noqa: S608  names of our own list
                " CAST(sum(tokens_in) AS BIGINT) AS tokens_in, CAST(sum(tokens_out) AS BIGINT) AS tokens_out"
                f" FROM usage WHERE day > now_ms() / 86400000 - $1{ending}",
                days,
            )
            return [
                UsageRow(
                    **{name: row[name] for name in chosen},
                    used=Used(row["requests"], row["tokens_in"], row["tokens_out"]),
                )
                for row in rows
                if row["requests"] is not None
            ]

        return await self._database.read(body)

    async def read_key_tokens(self, *, known_day: int | None = None) -> KeyTokens:
        """What every key used today and this month. `known_day`: while it is today, the sums of earlier days are known,
        and are not read."""

        async def body(tx: Tx) -> KeyTokens:
            row = await tx.fetch_one("SELECT now_ms() AS now")
            assert row is not None
            today = row["now"] // DAY_MS
            first = month_days(today)[0]
            earlier = None if known_day == today else await _sum_by_key(tx, first, today)
            return KeyTokens(row["now"], await _sum_by_key(tx, today, today + 1), earlier)

        return await self._database.read(body)

    async def prune(self) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute("DELETE FROM usage WHERE day < now_ms() / 86400000 - $1", RETENTION_DAYS)
            await prune_writers(tx)

        await self._database.write(body)


async def _sum_by_key(tx: Tx, first_day: int, end_day: int) -> dict[str, int]:
    rows = await tx.fetch(
        "SELECT key_id, CAST(sum(tokens_in + tokens_out) AS BIGINT) AS tokens FROM usage"
        " WHERE day >= $1 AND day < $2 GROUP BY key_id",
        first_day,
        end_day,
    )
    return {row["key_id"]: row["tokens"] for row in rows}
