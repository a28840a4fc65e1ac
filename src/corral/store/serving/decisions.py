"""Placement decisions: where replicas were placed, and why not on other nodes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.core.replicas.placement import SCORE_NAMES, Candidate, Decision, Placed, PlacementVerdict, Score
from corral.store.engine.database import Database, Tx
from corral.store.serving.load_job_rows import LoadJob

DECISIONS_KEPT = 20
NODES_EXPLAINED = 200
"""In a larger cluster, a decision keeps the best candidates, and counts the others by reason."""
REASONS_COUNTED = 10
NO_SCORE: Score = (0, 0, 0, 0, 0, 0, 0, 0)


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
        """Newest first; of one model, or of one chosen node."""

        async def body(tx: Tx) -> list[RecordedDecision]:
            rows = await tx.fetch(
                "SELECT * FROM placement_decisions WHERE (CAST($1 AS TEXT) IS NULL OR model = $1)"
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
    ranked = sorted(decision.candidates, key=_rank)
    candidates = [
        {
            "node_id": candidate.node_id,
            "node": candidate.node_name,
            "verdict": candidate.verdict.value,
            "reason": candidate.reason,
            "score": dict(zip(SCORE_NAMES, candidate.score, strict=True)) if candidate.score else None,
        }
        for candidate in ranked[:NODES_EXPLAINED]
    ]
    await tx.execute(
        "INSERT INTO placement_decisions (model, job, at, cause, node_id, outcome, candidates)"
        " VALUES ($1, $2, now_ms(), $3, $4, $5, $6)",
        job.model,
        job.id,
        job.cause,
        outcome.node_id if isinstance(outcome, Placed) else None,
        msgspec.json.encode(_show_outcome(decision)).decode(),
        msgspec.json.encode(
            {"nodes": len(ranked), "candidates": candidates, "others": _count(ranked[NODES_EXPLAINED:])}
        ).decode(),
    )
    await tx.execute(
        "DELETE FROM placement_decisions WHERE model = $1 AND id NOT IN"
        " (SELECT id FROM placement_decisions WHERE model = $1 ORDER BY id DESC LIMIT $2)",
        job.model,
        DECISIONS_KEPT,
    )


def _show_outcome(decision: Decision) -> dict[str, Any]:
    outcome = decision.outcome
    if not isinstance(outcome, Placed):
        return {"waiting": outcome.reason}
    node = next(node for node in decision.nodes if node.id == outcome.node_id)
    ended = [f"{held.model}#{held.slot}" for held in node.replicas if held.id in outcome.evict]
    return {"placed": outcome, "ended": ended} if ended else {"placed": outcome}


def _rank(candidate: Candidate) -> tuple[bool, bool, Score]:
    return candidate.verdict is not PlacementVerdict.CHOSEN, candidate.score is None, candidate.score or NO_SCORE


def _count(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """The most frequent reasons first."""
    alike = Counter((candidate.verdict.value, candidate.reason) for candidate in candidates)
    return [
        {"verdict": verdict, "reason": reason, "nodes": nodes}
        for (verdict, reason), nodes in alike.most_common(REASONS_COUNTED)
    ]
