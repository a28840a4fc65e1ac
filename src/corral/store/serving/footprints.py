"""Measured footprints of models: load time and peak memory."""

from collections.abc import Collection, Mapping

from corral.core.replicas.footprints import FootprintKey, Peak
from corral.store.engine.database import Database, Tx
from corral.store.engine.sql import in_list, places


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

    async def record_peaks(self, peaks: Mapping[FootprintKey, Peak]) -> None:
        """A recorded peak only grows: what a model once used it may use again."""

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                "INSERT INTO footprints (model, revision, backend_digest, device, peak_bytes, slots, measured_at)"
                " VALUES ($1, $2, $3, $4, $5, $6, now_ms()) ON CONFLICT (model, revision, backend_digest, device)"
                " DO UPDATE SET peak_bytes = excluded.peak_bytes, slots = excluded.slots,"
                " measured_at = excluded.measured_at"
                " WHERE footprints.peak_bytes IS NULL OR footprints.peak_bytes < excluded.peak_bytes",
                [
                    (key.model, key.revision, key.digest, key.device, peaks[key].memory_bytes, peaks[key].slots)
                    for key in sorted(peaks)
                ],
            )

        await self._database.write(body)

    async def read_versions(self, digests: Collection[str]) -> dict[FootprintKey, int]:
        """Peaks of these versions of backends."""
        wanted = in_list(digests)
        if not wanted:
            return {}

        async def body(tx: Tx) -> dict[FootprintKey, int]:
            rows = await tx.fetch(
                "SELECT model, revision, backend_digest, device, peak_bytes FROM footprints"  # noqa: S608
                f" WHERE peak_bytes IS NOT NULL AND backend_digest IN ({places(len(wanted))})",
                *wanted,
            )
            return {
                FootprintKey(row["model"], row["revision"], row["backend_digest"], row["device"]): row["peak_bytes"]
                for row in rows
            }

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
