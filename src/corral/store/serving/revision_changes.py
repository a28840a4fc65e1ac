"""The last edits of all models, with the replicas that have them."""

from corral.core.models.model_rollouts import RevisionChange
from corral.core.models.revisions import RevisionState
from corral.core.replicas.replica import ReplicaState
from corral.store.engine.database import Database, Tx

RECENT = 50
_ENDING = (ReplicaState.STOPPING.value, ReplicaState.FAILED.value)
_RECENT = (
    "SELECT edited.*, pending_revisions.reason AS waits_for, (SELECT MAX(earlier.number) FROM model_revisions earlier"
    " WHERE earlier.model = edited.model AND earlier.number < edited.number"
    " AND earlier.state NOT IN ('pending', 'failed', 'discarded', 'deleted')) AS previous"
    " FROM model_revisions edited LEFT JOIN pending_revisions ON pending_revisions.model = edited.model"
    " AND pending_revisions.number = edited.number"
    " WHERE edited.number > 1 AND edited.state <> 'deleted' ORDER BY edited.at DESC, edited.number DESC LIMIT $1"
)


class RevisionChangeStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_recent(self, *, limit: int = RECENT) -> list[RevisionChange]:
        """Newest first. A model's first revision, or the first after its deletion, replaces nothing and is left out."""

        async def body(tx: Tx) -> list[RevisionChange]:
            rows = await tx.fetch(_RECENT, limit)
            counted = await tx.fetch(
                "SELECT model, revision, COUNT(*) AS replicas FROM replicas WHERE state NOT IN ($1, $2)"
                " GROUP BY model, revision",
                *_ENDING,
            )
            replicas = {(row["model"], row["revision"]): row["replicas"] for row in counted}
            totals: dict[str, int] = {}
            for (model, _), count in replicas.items():
                totals[model] = totals.get(model, 0) + count
            found = []
            for row in rows:
                if row["previous"] is None:
                    continue
                own = replicas.get((row["model"], row["revision"]), 0)
                found.append(
                    RevisionChange(
                        model=row["model"],
                        number=row["number"],
                        previous=row["previous"],
                        state=RevisionState(row["state"]),
                        reason=row["waits_for"] or row["reason"],
                        comment=row["comment"],
                        actor=row["actor"],
                        at=row["at"],
                        replicas=own,
                        other_replicas=totals.get(row["model"], 0) - own,
                    )
                )
            return found

        return await self._database.read(body)
