"""Measured footprints of models: load time and peak memory."""

from collections.abc import Mapping

from corral.core.replicas.footprints import FootprintKey
from corral.store.engine.database import Database, Tx


async def record_load_time(tx: Tx, model: str, revision: str, backend_digest: str, device: str, load_ms: int) -> None:
    await tx.execute(
        "INSERT INTO footprints (model, revision, backend_digest, device, load_ms, measured_at)"
        " VALUES ($1, $2, $3, $4, $5, now_ms()) ON CONFLICT (model, revision, backend_digest, device)"
        " DO UPDATE SET load_ms = excluded.load_ms, measured_at = excluded.measured_at",
        model,
        revision,
        backend_digest,
        device,
        load_ms,
    )


class FootprintStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record_peaks(self, peaks: Mapping[FootprintKey, int]) -> None:
        """A recorded peak only grows: what a model once used it may use again."""

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                "INSERT INTO footprints (model, revision, backend_digest, device, peak_bytes, measured_at)"
                " VALUES ($1, $2, $3, $4, $5, now_ms()) ON CONFLICT (model, revision, backend_digest, device)"
                " DO UPDATE SET peak_bytes = excluded.peak_bytes, measured_at = excluded.measured_at"
                " WHERE footprints.peak_bytes IS NULL OR footprints.peak_bytes < excluded.peak_bytes",
                [(key.model, key.revision, key.digest, key.device, peak) for key, peak in sorted(peaks.items())],
            )

        await self._database.write(body)

    async def read_peaks(self, model: str, revision: str) -> dict[str, int]:
        """By device class; the largest of several backend versions."""

        async def body(tx: Tx) -> dict[str, int]:
            rows = await tx.fetch(
                "SELECT device, MAX(peak_bytes) AS peak FROM footprints"
                " WHERE model = $1 AND revision = $2 AND peak_bytes IS NOT NULL GROUP BY device",
                model,
                revision,
            )
            return {row["device"]: int(row["peak"]) for row in rows}

        return await self._database.read(body)
