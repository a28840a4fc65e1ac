"""How each version served each model on each node, minute by minute: what a rollout compares. Kept for some days."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from corral.core.backends.serving_figures import BUCKETS, ServingFigures, VersionKey
from corral.store.backends.version_exits import MINUTE_MS, read_minute
from corral.store.engine.database import Database, Tx
from corral.store.engine.sql import in_list, places
from corral.store.serving.batches import prune_writers, take_batch

RETENTION_MS = 3 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    key: VersionKey
    figures: ServingFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionExits:
    model: str
    revision: str
    """Empty if it is not known."""
    node_id: str
    digest: str
    exits: int


class VersionFigureStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, writer: str, batch: int, counts: Mapping[VersionKey, ServingFigures]) -> None:
        """Adds a batch to the current minute. A batch is counted once, so that a writer can repeat one whose outcome is
        unknown."""
        keys = sorted(counts)  # sorted, so that two frontends cannot deadlock

        async def body(tx: Tx) -> None:
            if not await take_batch(tx, writer, batch):
                return
            minute = await read_minute(tx)
            await tx.execute_many(
                "INSERT INTO version_figures (minute, model, node_id, digest, requests, errors, tokens_out, answer_ms)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
                " ON CONFLICT (digest, minute, model, node_id) DO UPDATE SET"
                " requests = version_figures.requests + excluded.requests,"
                " errors = version_figures.errors + excluded.errors,"
                " tokens_out = version_figures.tokens_out + excluded.tokens_out,"
                " answer_ms = version_figures.answer_ms + excluded.answer_ms",
                [
                    (minute, *key, one.requests, one.errors, one.tokens_out, one.answer_ms)
                    for key, one in ((key, counts[key]) for key in keys)
                ],
            )
            await tx.execute_many(
                "INSERT INTO version_first_tokens (minute, model, node_id, digest, bucket, streams)"
                " VALUES ($1, $2, $3, $4, $5, $6)"
                " ON CONFLICT (digest, minute, model, node_id, bucket) DO UPDATE SET"
                " streams = version_first_tokens.streams + excluded.streams",
                [
                    (minute, *key, bucket, streams)
                    for key in keys
                    for bucket, streams in enumerate(counts[key].first_token)
                    if streams
                ],
            )

        await self._database.write(body)

    async def read(
        self,
        *,
        digests: Collection[str],
        models: Collection[str] | None = None,
        since_ms: int,
        until_ms: int | None = None,
    ) -> list[VersionRow]:
        """Sums by model, node and version, from the minute of `since_ms` on and before that of `until_ms` (None: until
        now), by the store's clock. `models`: all if None."""
        names, wanted = in_list(models or ()), in_list(digests)
        if not wanted or (models is not None and not names):
            return []
        first = since_ms // MINUTE_MS
        last = (1 << 62) if until_ms is None else until_ms // MINUTE_MS
        where = f"WHERE minute >= $1 AND minute < $2 AND digest IN ({places(len(wanted), first=3)})"
        if names:
            where += f" AND model IN ({places(len(names), first=3 + len(wanted))})"
        parameters = (first, last, *wanted, *names)

        async def body(tx: Tx) -> list[VersionRow]:
            times: dict[VersionKey, list[int]] = {}
            for row in await tx.fetch(
                "SELECT model, node_id, digest, bucket, CAST(sum(streams) AS BIGINT) AS streams"  # noqa: S608
                f" FROM version_first_tokens {where} GROUP BY model, node_id, digest, bucket",
                *parameters,
            ):
                key = VersionKey(row["model"], row["node_id"], row["digest"])
                if 0 <= row["bucket"] < BUCKETS:
                    times.setdefault(key, [0] * BUCKETS)[row["bucket"]] += row["streams"]
            found = []
            for row in await tx.fetch(
                "SELECT model, node_id, digest, CAST(sum(requests) AS BIGINT) AS requests,"  # noqa: S608
                " CAST(sum(errors) AS BIGINT) AS errors, CAST(sum(tokens_out) AS BIGINT) AS tokens_out,"
                f" CAST(sum(answer_ms) AS BIGINT) AS answer_ms FROM version_figures {where}"
                " GROUP BY model, node_id, digest ORDER BY model, node_id, digest",
                *parameters,
            ):
                key = VersionKey(row["model"], row["node_id"], row["digest"])
                figures = ServingFigures(
                    requests=row["requests"],
                    errors=row["errors"],
                    first_token=tuple(times.get(key, (0,) * BUCKETS)),
                    tokens_out=row["tokens_out"],
                    answer_ms=row["answer_ms"],
                )
                found.append(VersionRow(key=key, figures=figures))
            return found

        return await self._database.read_large(body)

    async def read_exits(self, *, digests: Collection[str], since_ms: int) -> list[VersionExits]:
        """Processes of these versions that ended although nobody stopped them, from the minute of `since_ms` on."""
        wanted = in_list(digests)
        if not wanted:
            return []

        async def body(tx: Tx) -> list[VersionExits]:
            rows = await tx.fetch(
                "SELECT model, revision, node_id, digest, CAST(sum(exits) AS BIGINT) AS exits FROM version_exits"  # noqa: S608
                f" WHERE minute >= $1 AND digest IN ({places(len(wanted), first=2)})"
                " GROUP BY model, revision, node_id, digest ORDER BY model, revision, node_id, digest",
                since_ms // MINUTE_MS,
                *wanted,
            )
            return [
                VersionExits(
                    model=row["model"],
                    revision=row["revision"],
                    node_id=row["node_id"],
                    digest=row["digest"],
                    exits=row["exits"],
                )
                for row in rows
            ]

        return await self._database.read(body)

    async def prune(self) -> None:
        async def body(tx: Tx) -> None:
            oldest = await read_minute(tx) - RETENTION_MS // MINUTE_MS
            await tx.execute("DELETE FROM version_figures WHERE minute < $1", oldest)
            await tx.execute("DELETE FROM version_first_tokens WHERE minute < $1", oldest)
            await tx.execute("DELETE FROM version_exits WHERE minute < $1", oldest)
            await prune_writers(tx)

        await self._database.write(body)
