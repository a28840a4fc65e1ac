"""Where replicas were placed, and what ruled other machines out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.core.placement import SCORE_NAMES, Decision, Placed
from corral.store.database import Database, Tx
from corral.store.load_job_rows import LoadJob

DECISIONS_KEPT = 20
NODES_EXPLAINED = 200
"""Of a larger herd a decision keeps the best and counts the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    id: int
    model: str
    job: str
    at: int
    cause: str
    outcome: Mapping[str, Any]
    candidates: Mapping[str, Any]


class DecisionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(
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


async def record_decision(tx: Tx, job: LoadJob, decision: Decision) -> None:
    outcome = decision.outcome
    candidates = [
        {
            "node_id": candidate.node_id,
            "node": candidate.node_name,
            "verdict": candidate.verdict.value,
            "reason": candidate.reason,
            "score": dict(zip(SCORE_NAMES, candidate.score, strict=True)) if candidate.score else None,
        }
        for candidate in sorted(decision.candidates, key=lambda one: (one.verdict.value != "chosen", one.score is None))
    ]
    await tx.execute(
        "INSERT INTO decisions (model, job, at, cause, node_id, outcome, candidates)"
        " VALUES ($1, $2, now_ms(), $3, $4, $5, $6)",
        job.model,
        job.id,
        job.cause,
        outcome.node_id if isinstance(outcome, Placed) else None,
        msgspec.json.encode(
            {"placed": outcome} if isinstance(outcome, Placed) else {"waiting": outcome.reason}
        ).decode(),
        msgspec.json.encode({"nodes": len(candidates), "candidates": candidates[:NODES_EXPLAINED]}).decode(),
    )
    await tx.execute(
        "DELETE FROM decisions WHERE model = $1 AND id NOT IN"
        " (SELECT id FROM decisions WHERE model = $1 ORDER BY id DESC LIMIT $2)",
        job.model,
        DECISIONS_KEPT,
    )
