"""The append-only audit log: who did what, to what, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from corral.store.engine.database import Database, Row, Tx

MAX_NODES_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    id: int
    at: int
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]


async def append_event(
    tx: Tx, *, actor: str, action: str, subject: str, detail: Mapping[str, Any] | None = None
) -> None:
    """Call it in the transaction of the change, so that neither exists without the other."""
    await tx.execute(
        "INSERT INTO audit_events (at, actor, action, subject, detail) VALUES (now_ms(), $1, $2, $3, $4)",
        actor,
        action,
        subject,
        msgspec.json.encode(detail or {}).decode(),
    )


def summarize_nodes(ids: Sequence[str]) -> dict[str, Any]:
    """For the detail of an event: the number of nodes, and the first few of them."""
    return {"nodes": list(ids[:MAX_NODES_NAMED]), "node_count": len(ids)}


def _event(row: Row) -> AuditEvent:
    return AuditEvent(
        id=row["id"],
        at=row["at"],
        actor=row["actor"],
        action=row["action"],
        subject=row["subject"],
        detail=msgspec.json.decode(row["detail"]),
    )


class AuditEventStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, *, actor: str, action: str, subject: str, detail: Mapping[str, Any] | None = None) -> None:
        async def body(tx: Tx) -> None:
            await append_event(tx, actor=actor, action=action, subject=subject, detail=detail)

        await self._database.write(body)

    async def read_latest(
        self, *, limit: int, before: int | None = None, since_ms: int | None = None
    ) -> list[AuditEvent]:
        async def body(tx: Tx) -> list[AuditEvent]:
            rows = await tx.fetch(
                "SELECT * FROM audit_events WHERE id < $1 AND at >= $2 ORDER BY id DESC LIMIT $3",
                before or (1 << 62),
                since_ms or 0,
                limit,
            )
            return [_event(row) for row in rows]

        return await self._database.read(body)

    async def trim(self, *, keep_s: float, most: int, at_once: int) -> int:
        """Delete up to `at_once` events older than `keep_s` or not among the `most` newest. Returns how many."""

        async def body(tx: Tx) -> int:
            over = await tx.fetch_one("SELECT id FROM audit_events ORDER BY id DESC LIMIT 1 OFFSET $1", most)
            return await tx.execute(
                "DELETE FROM audit_events WHERE id IN"
                " (SELECT id FROM audit_events WHERE id <= $1 OR at < now_ms() - $2 ORDER BY id LIMIT $3)",
                over["id"] if over else 0,
                int(keep_s * 1000),
                at_once,
            )

        return await self._database.write(body)
