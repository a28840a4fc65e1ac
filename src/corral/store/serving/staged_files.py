"""Weights on nodes: which models have files where, and their deletion with their model."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from corral.core.models.load_plan import uses_file
from corral.store.engine.counters import ROUTES, read_counter
from corral.store.engine.database import Database, Tx
from corral.store.serving.models import read_models


@dataclass(frozen=True, slots=True)
class FileDeletion:
    node_id: str
    model: str
    attempts: int
    files: tuple[str, ...]
    """Paths below the models directory, without files that another model uses."""
    generation: int = 0
    """Every load that is placed later has a higher one."""
    epoch: int | None = None
    """Of the node's worker; None for a LocalAI worker."""


@dataclass(frozen=True, slots=True)
class Staged:
    revision: str
    weights_bytes: int | None
    at_ms: int
    """When all files were there."""


_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class StagedFileStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def note_staged(
        self, node_id: str, model: str, revision: str, weights_bytes: int | None, files: Sequence[str] = ()
    ) -> None:
        """Files of earlier revisions stay recorded too: a deletion removes all."""

        async def body(tx: Tx) -> None:
            row = await tx.fetch_one(
                "SELECT files FROM staged_models WHERE node_id = $1 AND model = $2 FOR UPDATE", node_id, model
            )
            known = sorted({*files, *(_decode_names(row["files"]) if row else ())})
            await tx.execute(
                "INSERT INTO staged_models (node_id, model, revision, weights_bytes, staged_at, delete_requested,"
                " delete_attempts, delete_error, delete_due_at, files)"
                " VALUES ($1, $2, $3, $4, now_ms(), $5, 0, '', 0, $6)"
                " ON CONFLICT (node_id, model) DO UPDATE SET revision = excluded.revision, files = excluded.files,"
                " weights_bytes = excluded.weights_bytes, staged_at = excluded.staged_at, delete_requested = $5",
                node_id,
                model,
                revision,
                weights_bytes,
                False,
                msgspec.json.encode(known).decode(),
            )

        await self._database.write(body)

    async def read_staged(self, model: str) -> dict[str, Staged]:
        """By node: the staged revision."""

        async def body(tx: Tx) -> dict[str, Staged]:
            rows = await tx.fetch(
                "SELECT node_id, revision, weights_bytes, staged_at FROM staged_models"
                " WHERE model = $1 AND delete_requested = $2",
                model,
                False,
            )
            return {row["node_id"]: Staged(row["revision"], row["weights_bytes"], row["staged_at"]) for row in rows}

        return await self._database.read(body)

    async def request_deletion(self, model: str, node_id: str | None = None) -> None:
        """Delete the files on one node or on all; on an offline node, when it returns."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE staged_models SET delete_requested = $3, delete_due_at = now_ms()"
                " WHERE model = $1 AND (CAST($2 AS TEXT) IS NULL OR node_id = $2)",
                model,
                node_id,
                True,
            )

        await self._database.write(body)

    async def request_deletion_with_models(self) -> None:
        """Delete the files of deleted models, and forget those on removed nodes."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "DELETE FROM staged_models WHERE NOT EXISTS"
                " (SELECT 1 FROM nodes n WHERE n.id = staged_models.node_id AND n.removed_at IS NULL)"
            )
            await tx.execute(
                "UPDATE staged_models SET delete_requested = $1, delete_due_at = now_ms() WHERE delete_requested = $2"
                " AND NOT EXISTS (SELECT 1 FROM models m WHERE m.name = staged_models.model AND m.deleted_at IS NULL)",
                True,
                False,
            )

        await self._database.write(body)

    async def claim_deletions(self, *, lease_ms: int, most: int = 32) -> list[FileDeletion]:
        async def body(tx: Tx) -> list[FileDeletion]:
            # Read before the replicas: a load that is placed after this has a higher one.
            generation = await read_counter(tx, ROUTES)
            rows = await tx.fetch(
                "SELECT node_id, model, delete_attempts, files,"
                " (SELECT n.epoch FROM nodes n WHERE n.id = staged_models.node_id AND n.instance IS NOT NULL) AS epoch"
                " FROM staged_models WHERE delete_requested = $1 AND delete_due_at <= now_ms()"
                " AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.node_id = staged_models.node_id"
                " AND r.model = staged_models.model) ORDER BY node_id, model LIMIT $2 FOR UPDATE",
                True,
                most,
            )
            models = await read_models(tx) if rows else []
            found = []
            for row in rows:
                others = [model.config for model in models if model.name != row["model"]]
                files = tuple(
                    file
                    for file in _decode_names(row["files"])
                    if not any(uses_file(config, file) for config in others)
                )
                attempts, epoch = row["delete_attempts"], row["epoch"]
                found.append(FileDeletion(row["node_id"], row["model"], attempts, files, generation, epoch))
            await tx.execute_many(
                "UPDATE staged_models SET delete_due_at = now_ms() + $3 WHERE node_id = $1 AND model = $2",
                [(one.node_id, one.model, lease_ms) for one in found],
            )
            return found

        return await self._database.write(body)

    async def deleted(self, deletion: FileDeletion) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "DELETE FROM staged_models WHERE node_id = $1 AND model = $2 AND delete_requested = $3",
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
