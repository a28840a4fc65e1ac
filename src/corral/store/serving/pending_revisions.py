"""Pending revisions: model edits that take effect once a replica of them is ready."""

from collections.abc import Mapping
from dataclasses import dataclass

from corral.core.models.config import ModelConfig, canonical_json, config_revision
from corral.store.access.audit_events import append_event
from corral.store.engine.database import Row, Tx
from corral.store.serving.documents import read_document
from corral.store.serving.revision_rows import MAX_REASON_CHARS, record_failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRevision:
    replaces: str
    """The current revision it replaces. If the model has another one, this pending revision is void."""
    revision: str
    number: int
    text: str
    config: ModelConfig
    changed_at: int
    changed_by: str
    reason: str
    """Why it does not serve yet; empty during its first load."""
    failures: int
    held: bool
    """Whether it is not retried automatically, because its load required to stop the replica that served."""


def _pending(row: Row) -> PendingRevision:
    return PendingRevision(
        replaces=row["replaces"],
        revision=row["revision"],
        number=row["number"],
        text=row["config"],
        config=read_document(row["document"]),
        changed_at=row["at"],
        changed_by=row["actor"],
        reason=row["reason"],
        failures=row["failures"],
        held=bool(row["held"]),
    )


async def read_pending(tx: Tx) -> Mapping[str, PendingRevision]:
    return {row["model"]: _pending(row) for row in await tx.fetch("SELECT * FROM pending_revisions")}


async def find_pending(tx: Tx, model: str) -> PendingRevision | None:
    row = await tx.fetch_one("SELECT * FROM pending_revisions WHERE model = $1", model)
    return _pending(row) if row else None


async def insert_pending(tx: Tx, config: ModelConfig, text: str, actor: str, *, replaces: str, number: int) -> None:
    await delete_pending(tx, config.name)
    await tx.execute(
        "INSERT INTO pending_revisions (model, replaces, revision, config, document, at, actor, reason, failures, held,"
        " number) VALUES ($1, $2, $3, $4, $5, now_ms(), $6, '', 0, 0, $7)",
        config.name,
        replaces,
        config_revision(config),
        text,
        canonical_json(config),
        actor,
        number,
    )


async def delete_pending(tx: Tx, model: str) -> None:
    await tx.execute("DELETE FROM pending_revisions WHERE model = $1", model)


async def record_pending_waits(tx: Tx, model: str, revision: str, reason: str) -> None:
    """What it waits for. After a failure, the reason of that says more."""
    await tx.execute(
        "UPDATE pending_revisions SET reason = $3 WHERE model = $1 AND revision = $2 AND failures = 0",
        model,
        revision,
        reason[:MAX_REASON_CHARS],
    )


async def record_pending_failure(tx: Tx, model: str, pending: PendingRevision, reason: str, *, held: bool) -> None:
    await tx.execute(
        "UPDATE pending_revisions SET reason = $3, failures = failures + 1, held = $4"
        " WHERE model = $1 AND revision = $2",
        model,
        pending.revision,
        reason[:MAX_REASON_CHARS],
        int(held),
    )
    if await record_failed(tx, model, pending.number, reason):
        detail = {
            "number": pending.number,
            "revision": pending.revision,
            "reason": reason[:MAX_REASON_CHARS],
            "fix": f"corral models edit {model}, or corral models rollback {model}",
        }
        await append_event(tx, actor="corral", action="model.revision_failed", subject=model, detail=detail)


async def retry_pending(tx: Tx, model: str) -> None:
    """Allow the next load at once, as a person requested."""
    await tx.execute("UPDATE pending_revisions SET held = 0, failures = 0 WHERE model = $1", model)
