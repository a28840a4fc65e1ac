"""The history of model configurations: one numbered row for each revision."""

from dataclasses import dataclass

from corral.core.models.revisions import RevisionState
from corral.store.engine.database import Row, Tx

MAX_REVISIONS = 100
MAX_REASON_CHARS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRevision:
    number: int
    """Counts the revisions of one model, from 1."""
    revision: str
    """A hash of the content."""
    text: str
    """Empty for a deletion."""
    state: RevisionState
    reason: str
    """Why it failed, or waits."""
    comment: str
    at: int
    actor: str
    served_at: int | None
    """When a replica with it was first ready; None if none ever was."""


def revision_of(row: Row) -> ModelRevision:
    return ModelRevision(
        number=row["number"],
        revision=row["revision"],
        text=row["config"],
        state=RevisionState(row["state"]),
        reason=row["reason"],
        comment=row["comment"],
        at=row["at"],
        actor=row["actor"],
        served_at=row["served_at"],
    )


async def append_revision(
    tx: Tx, model: str, revision: str, text: str, *, state: RevisionState, actor: str, comment: str
) -> int:
    """Add a revision and return its number. It replaces the pending one; a current or deleted one also the current one.

    The newest 100 are kept, and besides them the current, the pending and the last one that served before."""
    ended = {RevisionState.PENDING: RevisionState.DISCARDED}
    if state is not RevisionState.PENDING:
        ended[RevisionState.CURRENT] = RevisionState.SUPERSEDED
    for before, after in ended.items():
        await _change_state(tx, model, before, after)
    row = await tx.fetch_one(
        "INSERT INTO model_revisions (model, number, revision, config, state, reason, comment, at, actor)"
        " SELECT CAST($1 AS TEXT), COALESCE(MAX(number), 0) + 1, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),"
        " '', CAST($5 AS TEXT), now_ms(), CAST($6 AS TEXT) FROM model_revisions WHERE model = $1 RETURNING number",
        model,
        revision,
        text,
        state.value,
        comment,
        actor,
    )
    assert row is not None
    number: int = row["number"]
    await tx.execute(
        "DELETE FROM model_revisions WHERE model = $1 AND number <= $2 AND state NOT IN ('current', 'pending')"
        " AND number NOT IN (SELECT COALESCE(MAX(number), 0) FROM model_revisions"
        " WHERE model = $1 AND served_at IS NOT NULL AND state <> 'current')",
        model,
        number - MAX_REVISIONS,
    )
    return number


async def make_current(tx: Tx, model: str, number: int) -> None:
    """A pending revision becomes the current one."""
    await _change_state(tx, model, RevisionState.CURRENT, RevisionState.SUPERSEDED)
    await tx.execute(
        "UPDATE model_revisions SET state = 'current', reason = '' WHERE model = $1 AND number = $2", model, number
    )


async def discard_pending(tx: Tx, model: str) -> None:
    """A pending revision is taken back. One that failed stays failed, with its reason."""
    await _change_state(tx, model, RevisionState.PENDING, RevisionState.DISCARDED)


async def record_failed(tx: Tx, model: str, number: int, reason: str) -> bool:
    """Return whether the failure is news: the first one, or one for another reason."""
    row = await tx.fetch_one(
        "UPDATE model_revisions SET state = 'failed', reason = $3"
        " WHERE model = $1 AND number = $2 AND (state <> 'failed' OR reason <> $3) RETURNING number",
        model,
        number,
        reason[:MAX_REASON_CHARS],
    )
    return row is not None


async def record_served(tx: Tx, model: str, number: int) -> None:
    """A replica with this revision is ready."""
    await tx.execute(
        "UPDATE model_revisions SET served_at = now_ms() WHERE model = $1 AND number = $2 AND served_at IS NULL",
        model,
        number,
    )


async def carry_served(tx: Tx, model: str, before: int, after: int) -> None:
    """The replicas of one revision now count for the next one, which is loaded in the same way."""
    row = await tx.fetch_one("SELECT served_at FROM model_revisions WHERE model = $1 AND number = $2", model, before)
    if row is not None and row["served_at"] is not None:
        await record_served(tx, model, after)


async def _change_state(tx: Tx, model: str, before: RevisionState, after: RevisionState) -> None:
    await tx.execute(
        "UPDATE model_revisions SET state = $3 WHERE model = $1 AND state = $2", model, before.value, after.value
    )
