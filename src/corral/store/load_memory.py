"""What loads left behind: how a model was last loaded, how long that took and how much memory."""

from dataclasses import dataclass

from corral.core.errors import InvalidInput
from corral.store.database import Database, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInfo:
    model: str
    backend: str
    backend_digest: str
    load_options: str
    revision: str
    loaded_at: int


async def upsert_load_info(
    tx: Tx, model: str, backend: str, backend_digest: str, load_options: str, revision: str
) -> None:
    if not model or not backend:
        raise InvalidInput("a load is remembered by its model's and backend's names, and one of them is empty")
    await tx.execute(
        "INSERT INTO model_load_infos (model, backend, backend_digest, load_options, revision, loaded_at)"
        " VALUES ($1, $2, $3, $4, $5, now_ms()) ON CONFLICT (model) DO UPDATE SET backend = excluded.backend,"
        " backend_digest = excluded.backend_digest, load_options = excluded.load_options,"
        " revision = excluded.revision, loaded_at = excluded.loaded_at",
        model,
        backend,
        backend_digest,
        load_options,
        revision,
    )


async def note_load_time(tx: Tx, model: str, revision: str, backend_digest: str, device: str, load_ms: int) -> None:
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


class LoadMemoryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_load_info(self, info: LoadInfo) -> None:
        """The last writer wins."""

        async def body(tx: Tx) -> None:
            await upsert_load_info(tx, info.model, info.backend, info.backend_digest, info.load_options, info.revision)

        await self._database.write(body)

    async def find_load_info(self, model: str) -> LoadInfo | None:
        """Of the last success; from a replica's own copy where an older version of Corral kept only that."""

        async def body(tx: Tx) -> LoadInfo | None:
            row = await tx.fetch_one("SELECT * FROM model_load_infos WHERE model = $1", model)
            if row is None:
                row = await tx.fetch_one(
                    "SELECT model, backend, backend_digest, load_options, revision, ready_at AS loaded_at FROM replicas"
                    " WHERE model = $1 AND backend <> '' AND ready_at IS NOT NULL ORDER BY ready_at DESC LIMIT 1",
                    model,
                )
            if row is None:
                return None
            columns = ("model", "backend", "backend_digest", "load_options", "revision", "loaded_at")
            return LoadInfo(**{column: row[column] for column in columns})

        return await self._database.read(body)

    async def note_peak(self, model: str, revision: str, digest: str, device: str, peak_bytes: int) -> None:
        """Only ever grows: what a model once took it may take again."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "INSERT INTO footprints (model, revision, backend_digest, device, peak_bytes, measured_at)"
                " VALUES ($1, $2, $3, $4, $5, now_ms()) ON CONFLICT (model, revision, backend_digest, device)"
                " DO UPDATE SET peak_bytes = excluded.peak_bytes, measured_at = excluded.measured_at"
                " WHERE footprints.peak_bytes IS NULL OR footprints.peak_bytes < excluded.peak_bytes",
                model,
                revision,
                digest,
                device,
                peak_bytes,
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
