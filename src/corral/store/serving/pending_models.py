"""Revisions of models that are to take over when they have proven that they can be loaded; until then the ones before
serve on."""

from collections.abc import Mapping
from dataclasses import dataclass

from corral.core.models.config import ModelConfig, canonical_json, config_revision
from corral.store.engine.database import Row, Tx
from corral.store.engine.documents import read_document

REASON_MOST_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRevision:
    replaces: str
    """The revision that serves on. Where the model has another by now, a frontend that knows nothing of pending ones
    has saved it, and this one is over."""
    revision: str
    text: str
    config: ModelConfig
    changed_at: int
    changed_by: str
    reason: str
    """Why it does not serve yet; empty while its first load is under way."""
    failures: int
    held: bool
    """It failed when nothing else could serve beside it: it is not tried again unless somebody asks for that."""


def _pending(row: Row) -> PendingRevision:
    return PendingRevision(
        replaces=row["replaces"],
        revision=row["revision"],
        text=row["config"],
        config=read_document(row["document"]),
        changed_at=row["at"],
        changed_by=row["actor"],
        reason=row["reason"],
        failures=row["failures"],
        held=bool(row["held"]),
    )


async def read_pending(tx: Tx) -> Mapping[str, PendingRevision]:
    return {row["model"]: _pending(row) for row in await tx.fetch("SELECT * FROM model_pending")}


async def find_pending(tx: Tx, model: str) -> PendingRevision | None:
    row = await tx.fetch_one("SELECT * FROM model_pending WHERE model = $1", model)
    return _pending(row) if row else None


async def put_pending(tx: Tx, config: ModelConfig, text: str, actor: str, *, replaces: str) -> None:
    await drop_pending(tx, config.name)
    await tx.execute(
        "INSERT INTO model_pending (model, replaces, revision, config, document, at, actor, reason, failures, held)"
        " VALUES ($1, $2, $3, $4, $5, now_ms(), $6, '', 0, 0)",
        config.name,
        replaces,
        config_revision(config),
        text,
        canonical_json(config),
        actor,
    )


async def drop_pending(tx: Tx, model: str) -> None:
    await tx.execute("DELETE FROM model_pending WHERE model = $1", model)


async def note_pending_waits(tx: Tx, model: str, revision: str, reason: str) -> None:
    await tx.execute(
        "UPDATE model_pending SET reason = $3 WHERE model = $1 AND revision = $2",
        model,
        revision,
        reason[:REASON_MOST_CHARS],
    )


async def note_pending_failed(tx: Tx, model: str, revision: str, reason: str, *, held: bool) -> None:
    await tx.execute(
        "UPDATE model_pending SET reason = $3, failures = failures + 1, held = $4 WHERE model = $1 AND revision = $2",
        model,
        revision,
        reason[:REASON_MOST_CHARS],
        int(held),
    )


async def forgive_pending(tx: Tx, model: str) -> None:
    """Somebody wants it tried now."""
    await tx.execute("UPDATE model_pending SET held = 0, failures = 0 WHERE model = $1", model)
