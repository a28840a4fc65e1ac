"""Measured footprints of models: load time and peak memory."""

from collections.abc import Collection, Mapping

from corral.core.replicas.footprints import FootprintKey, Peak
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places

_KEY = "model, revision, backend_digest, node_class, fitted_bytes"


async def record_load_time(tx: Tx, key: FootprintKey, load_ms: int) -> None:
    await tx.execute(
        f"INSERT INTO footprints ({_KEY}, device, load_ms, measured_at)"  # noqa: S608
        f" VALUES ($1, $2, $3, $4, $5, $6, $7, now_ms()) ON CONFLICT ({_KEY})"
        " DO UPDATE SET load_ms = excluded.load_ms, measured_at = excluded.measured_at",
        *_values(key),
        load_ms,
    )


def _values(key: FootprintKey) -> tuple[str | int, ...]:
    return key.model, key.revision, key.digest, key.node_class, key.fitted_bytes, key.device


class FootprintStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record_peaks(self, peaks: Mapping[FootprintKey, Peak]) -> None:
        """A recorded peak only grows: what a model once used it may use again."""

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                f"INSERT INTO footprints ({_KEY}, device, peak_bytes, slots, measured_at)"  # noqa: S608
                f" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now_ms()) ON CONFLICT ({_KEY})"
                " DO UPDATE SET peak_bytes = excluded.peak_bytes, slots = excluded.slots,"
                " measured_at = excluded.measured_at"
                " WHERE footprints.peak_bytes IS NULL OR footprints.peak_bytes < excluded.peak_bytes",
                [(*_values(key), peaks[key].memory_bytes, peaks[key].slots) for key in sorted(peaks)],
            )

        await self._database.write(body)

    async def read_versions(self, digests: Collection[str]) -> dict[FootprintKey, int | None]:
        """Where these versions of backends have served, with their peaks; None if it is not known."""
        wanted = in_list(digests)
        if not wanted:
            return {}

        async def body(tx: Tx) -> dict[FootprintKey, int | None]:
            rows = await tx.fetch(
                f"SELECT {_KEY}, device, peak_bytes FROM footprints"  # noqa: S608
                f" WHERE backend_digest IN ({places(len(wanted))})",
                *wanted,
            )
            return {_read_key(row): row["peak_bytes"] for row in rows}

        return await self._database.read(body)

    async def read_peaks(self, model: str, revision: str) -> dict[str, Peak]:
        """By device class; the largest of several backend versions."""

        async def body(tx: Tx) -> dict[str, Peak]:
            rows = await tx.fetch(
                "SELECT device, peak_bytes, slots FROM footprints"
                " WHERE model = $1 AND revision = $2 AND peak_bytes IS NOT NULL ORDER BY peak_bytes",
                model,
                revision,
            )
            return {row["device"]: Peak(row["peak_bytes"], row["slots"]) for row in rows}

        return await self._database.read(body)


def _read_key(row: Row) -> FootprintKey:
    return FootprintKey(
        model=row["model"],
        revision=row["revision"],
        digest=row["backend_digest"],
        node_class=row["node_class"],
        fitted_bytes=row["fitted_bytes"],
        device=row["device"],
    )
