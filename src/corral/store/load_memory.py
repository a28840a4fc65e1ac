"""What loads left behind: how a model was last loaded, what memory it took, where its files are, why it is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.core.errors import InvalidInput
from corral.store.database import Database, Tx
from corral.store.models import StoredModel, read_models


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInfo:
    model: str
    backend: str
    backend_digest: str
    load_options: str
    revision: str
    loaded_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    id: int
    model: str
    job: str
    at: int
    cause: str
    outcome: Mapping[str, Any]
    candidates: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FileDeletion:
    node_id: str
    model: str
    attempts: int
    files: tuple[str, ...]
    """Below the models directory, without those that another model still uses."""


_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


def _paths(model: StoredModel) -> tuple[str, ...]:
    return (*model.config.weight_paths, *(file.filename for file in model.config.files))


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

    # Footprints

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

    # Files on nodes

    async def note_staged(
        self, node_id: str, model: str, revision: str, weights_bytes: int | None, files: Sequence[str] = ()
    ) -> None:
        """Files of an earlier revision are remembered too: a delete takes all."""

        async def body(tx: Tx) -> None:
            row = await tx.fetch_one(
                "SELECT files FROM staged_models WHERE node_id = $1 AND model = $2 FOR UPDATE", node_id, model
            )
            known = sorted({*files, *(_decode_names(row["files"]) if row else ())})
            await tx.execute(
                "INSERT INTO staged_models (node_id, model, revision, weights_bytes, staged_at, delete_wanted,"
                " delete_attempts, delete_error, delete_due_at, files)"
                " VALUES ($1, $2, $3, $4, now_ms(), $5, 0, '', 0, $6)"
                " ON CONFLICT (node_id, model) DO UPDATE SET revision = excluded.revision, files = excluded.files,"
                " weights_bytes = excluded.weights_bytes, staged_at = excluded.staged_at, delete_wanted = $5",
                node_id,
                model,
                revision,
                weights_bytes,
                False,
                msgspec.json.encode(known).decode(),
            )

        await self._database.write(body)

    async def read_staged(self, model: str) -> dict[str, tuple[str, int | None]]:
        """By node: the revision whose files are there, and how large they are."""

        async def body(tx: Tx) -> dict[str, tuple[str, int | None]]:
            rows = await tx.fetch(
                "SELECT node_id, revision, weights_bytes FROM staged_models WHERE model = $1 AND delete_wanted = $2",
                model,
                False,
            )
            return {row["node_id"]: (row["revision"], row["weights_bytes"]) for row in rows}

        return await self._database.read(body)

    async def want_deleted(self, model: str, node_id: str | None = None) -> None:
        """Durable: carried out on each node when it is there, however long that takes."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE staged_models SET delete_wanted = $3, delete_due_at = now_ms()"
                " WHERE model = $1 AND (CAST($2 AS TEXT) IS NULL OR node_id = $2)",
                model,
                node_id,
                True,
            )

        await self._database.write(body)

    async def want_deleted_with_models(self) -> None:
        """What is left of models that were deleted."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE staged_models SET delete_wanted = $1, delete_due_at = now_ms() WHERE delete_wanted = $2"
                " AND NOT EXISTS (SELECT 1 FROM models m WHERE m.name = staged_models.model AND m.deleted_at IS NULL)",
                True,
                False,
            )

        await self._database.write(body)

    async def claim_deletions(self, *, lease_ms: int, most: int = 32) -> list[FileDeletion]:
        async def body(tx: Tx) -> list[FileDeletion]:
            rows = await tx.fetch(
                "SELECT node_id, model, delete_attempts, files FROM staged_models"
                " WHERE delete_wanted = $1 AND delete_due_at <= now_ms()"
                " AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.node_id = staged_models.node_id"
                " AND r.model = staged_models.model) ORDER BY node_id, model LIMIT $2 FOR UPDATE",
                True,
                most,
            )
            models = await read_models(tx) if rows else []
            found = []
            for row in rows:
                used = {path for model in models if model.name != row["model"] for path in _paths(model)}
                files = tuple(file for file in _decode_names(row["files"]) if file not in used)
                found.append(FileDeletion(row["node_id"], row["model"], row["delete_attempts"], files))
            await tx.execute_many(
                "UPDATE staged_models SET delete_due_at = now_ms() + $3 WHERE node_id = $1 AND model = $2",
                [(one.node_id, one.model, lease_ms) for one in found],
            )
            return found

        return await self._database.write(body)

    async def deleted(self, deletion: FileDeletion) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "DELETE FROM staged_models WHERE node_id = $1 AND model = $2 AND delete_wanted = $3",
                deletion.node_id,
                deletion.model,
                True,
            )

        await self._database.write(body)

    async def deletion_failed(self, deletion: FileDeletion, error: str, *, again_in_ms: int) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE staged_models SET delete_attempts = delete_attempts + 1, delete_error = $3,"
                " delete_due_at = now_ms() + $4 WHERE node_id = $1 AND model = $2",
                deletion.node_id,
                deletion.model,
                error[:2000],
                again_in_ms,
            )

        await self._database.write(body)

    # Why

    async def read_decisions(
        self, *, model: str | None = None, node_id: str | None = None, limit: int = 5
    ) -> list[RecordedDecision]:
        """Newest first; of one model, or those that chose one node."""

        async def body(tx: Tx) -> list[RecordedDecision]:
            rows = await tx.fetch(
                "SELECT * FROM decisions WHERE (CAST($1 AS TEXT) IS NULL OR model = $1)"
                " AND (CAST($2 AS TEXT) IS NULL OR node_id = $2) ORDER BY id DESC LIMIT $3",
                model,
                node_id,
                limit,
            )
            return [
                RecordedDecision(
                    id=row["id"],
                    model=row["model"],
                    job=row["job"],
                    at=row["at"],
                    cause=row["cause"],
                    outcome=msgspec.json.decode(row["outcome"]),
                    candidates=msgspec.json.decode(row["candidates"]),
                )
                for row in rows
            ]

        return await self._database.read(body)
