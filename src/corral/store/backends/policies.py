"""Policies: the desired state of a backend on every node that a selector matches."""

from collections.abc import Mapping

import msgspec

from corral.core.backends.intents import BackendSpec
from corral.core.backends.policies import Ensure, OnDrift, Policy
from corral.core.backends.rollouts import RolloutRequest
from corral.core.errors import NotFound
from corral.store.access.audit_events import append_event
from corral.store.engine.database import Database, Row, Tx

_decode_selector = msgspec.json.Decoder(dict[str, str]).decode
_decode_spec = msgspec.json.Decoder(BackendSpec).decode
_decode_rollout = msgspec.json.Decoder(RolloutRequest).decode


def encode_selector(selector: Mapping[str, str]) -> str:
    """Canonical: equal selectors have the same text."""
    return msgspec.json.encode(dict(selector), order="sorted").decode()


async def replace_policies(tx: Tx, backend: str, selector: str, *, operation_id: str) -> None:
    """End the policies that a new one replaces: one for all nodes replaces every policy of the backend, another one
    only those with the same selector."""
    await tx.execute(
        "UPDATE backend_policies SET ended_at = now_ms(), changed_at = now_ms(), ended_because = $4"
        " WHERE backend = $1 AND ended_at IS NULL AND ($2 = $3 OR selector = $2)",
        backend,
        selector,
        encode_selector({}),
        _replaced_by(operation_id),
    )


async def withdraw_policy(tx: Tx, operation_id: str, *, because: str) -> None:
    """End the policy of a cancelled operation. The ones it had replaced hold again, unless newer ones exist."""
    gone = await tx.execute(
        "UPDATE backend_policies SET ended_at = now_ms(), changed_at = now_ms(), ended_because = $2"
        " WHERE operation_id = $1 AND ended_at IS NULL",
        operation_id,
        because,
    )
    if gone:
        await tx.execute(
            "UPDATE backend_policies SET ended_at = NULL, changed_at = now_ms(), ended_because = ''"
            " WHERE ended_because = $1 AND NOT EXISTS (SELECT 1 FROM backend_policies AS other WHERE other.ended_at IS"
            " NULL AND other.backend = backend_policies.backend AND other.selector = backend_policies.selector)",
            _replaced_by(operation_id),
        )


async def restore_policy(tx: Tx, operation_id: str) -> None:
    """Bring back the policy of a cancelled operation that is retried, unless a newer one exists."""
    row = await tx.fetch_one(
        "SELECT id, backend, selector FROM backend_policies"
        " WHERE operation_id = $1 AND ended_because LIKE 'cancelled by %' AND NOT EXISTS (SELECT 1"
        " FROM backend_policies AS newer WHERE newer.backend = backend_policies.backend"
        " AND newer.generation > backend_policies.generation)",
        operation_id,
    )
    if row is None:
        return
    await replace_policies(tx, row["backend"], row["selector"], operation_id=operation_id)
    await tx.execute(
        "UPDATE backend_policies SET ended_at = NULL, changed_at = now_ms(), ended_because = '' WHERE id = $1",
        row["id"],
    )


def _replaced_by(operation_id: str) -> str:
    return f"replaced by operation {operation_id}"


def encode_request(rollout: RolloutRequest) -> str:
    return msgspec.json.encode(rollout).decode()


def _policy(row: Row) -> Policy:
    return Policy(
        id=row["id"],
        backend=row["backend"],
        selector=_decode_selector(row["selector"]),
        ensure=Ensure(row["ensure"]),
        spec=_decode_spec(row["spec"]),
        on_drift=OnDrift(row["on_drift"]),
        generation=row["generation"],
        operation_id=row["operation_id"],
        created_by=row["created_by"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
        rollout=_decode_rollout(row["rollout"]) if row["rollout"] else None,
    )


class PolicyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[Policy]:
        """Policies in force."""

        async def body(tx: Tx) -> list[Policy]:
            rows = await tx.fetch("SELECT * FROM backend_policies WHERE ended_at IS NULL ORDER BY backend, generation")
            return [_policy(row) for row in rows]

        return await self._database.read(body)

    async def set_on_drift(self, policy_id: str, on_drift: OnDrift, *, actor: str) -> Policy:
        async def body(tx: Tx) -> Policy:
            policy = await _lock(tx, policy_id)
            await tx.execute(
                "UPDATE backend_policies SET on_drift = $2, changed_at = now_ms() WHERE id = $1",
                policy_id,
                on_drift.value,
            )
            detail = {"on_drift": on_drift.value, "was": policy.on_drift.value, "selector": dict(policy.selector)}
            await append_event(tx, actor=actor, action="policy.changed", subject=policy.backend, detail=detail)
            return await _lock(tx, policy_id)

        return await self._database.write(body)

    async def set_rollout(self, policy_id: str, rollout: RolloutRequest, *, actor: str) -> Policy:
        async def body(tx: Tx) -> Policy:
            policy = await _lock(tx, policy_id)
            await tx.execute(
                "UPDATE backend_policies SET rollout = $2, changed_at = now_ms() WHERE id = $1",
                policy_id,
                encode_request(rollout),
            )
            detail = {"rollout": msgspec.to_builtins(rollout), "selector": dict(policy.selector)}
            await append_event(tx, actor=actor, action="policy.changed", subject=policy.backend, detail=detail)
            return await _lock(tx, policy_id)

        return await self._database.write(body)

    async def end(self, policy_id: str, *, actor: str) -> Policy:
        """End the policy. This neither installs nor deletes anything."""

        async def body(tx: Tx) -> Policy:
            policy = await _lock(tx, policy_id)
            await tx.execute(
                "UPDATE backend_policies SET ended_at = now_ms(), changed_at = now_ms(), ended_because = $2"
                " WHERE id = $1",
                policy_id,
                f"ended by {actor}",
            )
            await append_event(
                tx, actor=actor, action="policy.ended", subject=policy.backend, detail={"ensure": policy.ensure.value}
            )
            return policy

        return await self._database.write(body)


async def _lock(tx: Tx, policy_id: str) -> Policy:
    row = await tx.fetch_one("SELECT * FROM backend_policies WHERE id = $1 AND ended_at IS NULL FOR UPDATE", policy_id)
    if row is None:
        raise NotFound(f"there is no policy {policy_id!r}; list policies with `corral backends policies`")
    return _policy(row)
