"""Creates operations: the operation, its intents and its policy in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from corral.core.backends.conflicts import exclude_each_other, names_in
from corral.core.backends.intents import BackendSpec, Intent, Verb
from corral.core.backends.operations import Admission, NewIntent, NodeProgressStatus
from corral.core.backends.policies import Ensure, OnDrift, PolicyChange
from corral.core.backends.version_pins import PinChange, version_label
from corral.core.errors import Conflict, OutcomeUnknown
from corral.core.nodes.node import NodeId
from corral.store.access.audit_events import append_event, summarize_nodes
from corral.store.backends.intent_rows import (
    cancel_intents,
    decode_spec,
    encode_spec,
    finish_operations,
    lock_intents,
    lock_operations,
    mark_ended,
    touch_operations,
)
from corral.store.backends.operation_rows import encode_target
from corral.store.backends.policies import encode_request, encode_selector, replace_policies
from corral.store.backends.rollouts import describe_held, held_nodes, insert_rollout, settle_overlap
from corral.store.backends.version_pins import change_pins, released_operations
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places
from corral.system import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    id: str
    again: bool = False
    """Whether the operation was created by an earlier request with the same idempotency key."""


class AdmissionStore:
    def __init__(self, database: Database, ids: Ids) -> None:
        self._database, self._ids = database, ids

    async def find(self, idempotency_key: str, request_hash: str) -> Admitted | None:
        """The operation of an earlier request with this key. Raises Conflict if that was a different request."""

        async def body(tx: Tx) -> Admitted | None:
            return await _find_again(tx, idempotency_key, request_hash)

        return await self._database.read(body)

    async def admit(self, admission: Admission) -> Admitted:
        async def body(tx: Tx) -> Admitted:
            if admission.idempotency_key is not None:
                again = await _find_again(tx, admission.idempotency_key, admission.request_hash)
                if again is not None:
                    return again
            if await tx.fetch_one("SELECT id FROM operations WHERE id = $1", admission.id):
                return Admitted(id=admission.id)
            await self._admit(tx, admission)
            return Admitted(id=admission.id)

        try:
            return await self._database.write(body)
        except OutcomeUnknown:
            # The id was chosen before the commit, so the second attempt finds out whether the first one was stored.
            return await self._database.write(body)

    async def renew(self, intent: Intent, spec: BackendSpec, note: str) -> bool:
        """Give a pending intent another version and all its attempts again. False if it has changed in the meantime."""

        async def body(tx: Tx) -> bool:
            await lock_operations(tx, [intent.operation_id])
            changed = await tx.execute(
                "UPDATE intents SET spec = $3, digest = $4, attempts = 0, due_at = now_ms(), last_error = $5,"
                " changed_at = now_ms() WHERE id = $1 AND generation = $2 AND live AND state = 'pending'"
                " AND NOT cancel_requested",
                intent.id,
                intent.generation,
                encode_spec(spec),
                spec.build.digest,
                note,
            )
            if not changed:
                return False
            await tx.execute(
                "UPDATE operation_nodes SET status = 'queued', error = $3, digest = $4, variant = $5, attempts = 0,"
                " next_attempt_at = NULL, changed_at = now_ms() WHERE operation_id = $1 AND node_id = $2",
                intent.operation_id,
                intent.node_id,
                note,
                spec.build.digest,
                spec.build.name,
            )
            detail = {"operation": intent.operation_id, "reason": note, **summarize_nodes([intent.node_id])}
            await append_event(
                tx, actor="policy", action="backend.resolved_again", subject=intent.backend, detail=detail
            )
            await touch_operations(tx, [intent.operation_id])
            return True

        return await self._database.write(body)

    async def explain(self, intent: Intent, reason: str) -> bool:
        """Store why an intent that failed cannot succeed for now. False if it has changed in the meantime."""

        async def body(tx: Tx) -> bool:
            await lock_operations(tx, [intent.operation_id])
            changed = await tx.execute(
                "UPDATE intents SET last_error = $3, changed_at = now_ms() WHERE id = $1 AND generation = $2 AND newest"
                " AND state IN ('pending', 'dead_lettered') AND NOT cancel_requested AND last_error <> $3",
                intent.id,
                intent.generation,
                reason,
            )
            if changed:
                await tx.execute(
                    "UPDATE operation_nodes SET error = $3, changed_at = now_ms() WHERE operation_id = $1"
                    " AND node_id = $2",
                    intent.operation_id,
                    intent.node_id,
                    reason,
                )
                await touch_operations(tx, [intent.operation_id])
            return bool(changed)

        return await self._database.write(body)

    async def _admit(self, tx: Tx, admission: Admission) -> None:
        generation = await next_generation(tx)
        intents = await _valid_intents(tx, admission)
        admission = replace(admission, rollout=await settle_overlap(tx, admission, intents))
        replaced_corrections = await _failed_corrections(tx, intents) if admission.cause != "request" else []
        replaced = await _supersede(tx, admission, intents) or await _release(tx, admission, generation)
        await _insert_operation(tx, admission, generation)
        held = held_nodes(admission.rollout)
        await _insert_nodes(tx, admission, intents, held)
        await tx.execute_many(
            "INSERT INTO intents (id, node_id, backend, verb, generation, operation_id, spec, digest, held, state,"
            " live, newest, attempts, due_at, last_error, cancel_requested, fence, lease_until, created_at, changed_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', true, true, 0, now_ms(), '', false, 0, 0,"
            " now_ms(), now_ms())",
            [
                (
                    self._ids.uuid(),
                    intent.node_id,
                    intent.backend,
                    (intent.verb or admission.verb).value,
                    generation,
                    admission.id,
                    encode_spec(intent.spec),
                    intent.spec.build.digest,
                    intent.node_id in held,
                )
                for intent in intents
            ],
        )
        if admission.rollout is not None:
            await insert_rollout(tx, admission, admission.rollout)
        if admission.policy is not None:
            await self._change_policy(tx, admission, admission.policy, generation)
        if admission.cause == "request":
            await change_pins(tx, admission, intents, generation, ids=self._ids)
        else:
            await _dismiss_corrections(tx, replaced_corrections)
        await append_event(
            tx,
            actor=admission.actor,
            action=f"backend.{admission.verb.value}",
            subject=admission.backend,
            detail={
                "operation": admission.id,
                "cause": admission.cause,
                **_pin_detail(admission.pin),
                **summarize_nodes(_by_name(intents)),
            },
        )
        await touch_operations(tx, replaced)
        await finish_operations(tx, [admission.id, *replaced])

    async def _change_policy(self, tx: Tx, admission: Admission, change: PolicyChange, generation: int) -> None:
        selector = encode_selector(change.selector)
        before = await tx.fetch(
            "SELECT selector, on_drift, rollout FROM backend_policies"
            " WHERE backend = $1 AND ended_at IS NULL FOR UPDATE",
            admission.backend,
        )
        kept = next((OnDrift(row["on_drift"]) for row in before if row["selector"] == selector), OnDrift.CORRECT)
        rollout = next((row["rollout"] for row in before if row["selector"] == selector), "")
        if change.rollout is not None:
            rollout = encode_request(change.rollout)
        await replace_policies(tx, admission.backend, selector, operation_id=admission.id)
        on_drift = change.on_drift or (kept if change.ensure is Ensure.PRESENT else OnDrift.CORRECT)
        await tx.execute(
            "INSERT INTO backend_policies (id, backend, selector, ensure, spec, on_drift, generation, operation_id,"
            " created_by, created_at, changed_at, ended_because, rollout)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now_ms(), now_ms(), '', $10)",
            self._ids.uuid(),
            admission.backend,
            selector,
            change.ensure.value,
            encode_spec(change.spec),
            on_drift.value,
            generation,
            admission.id,
            admission.actor,
            rollout,
        )


def _pin_detail(pin: PinChange | None) -> dict[str, str]:
    if pin is None:
        return {}
    if pin.follows:
        return {"version": "follow", "reason": pin.reason}
    return {"version": pin.version or ", ".join(map(version_label, pin.specs)), "reason": pin.reason}


def _by_name(intents: Sequence[NewIntent]) -> list[NodeId]:
    return [intent.node_id for intent in sorted(intents, key=lambda intent: intent.node_name)]


async def next_generation(tx: Tx) -> int:
    """A generation higher than every earlier one. The row stays locked, so operations are created one after another.

    It follows the store's clock, so that a new store still exceeds the generations that workers know from an old
    one."""
    row = await tx.fetch_one(
        "INSERT INTO fleet_generation (id, generation) VALUES (1, now_ms()) ON CONFLICT (id) DO UPDATE SET generation ="
        " CASE WHEN fleet_generation.generation >= now_ms() THEN fleet_generation.generation + 1 ELSE now_ms() END"
        " RETURNING generation"
    )
    assert row is not None
    generation: int = row["generation"]
    return generation


async def _find_again(tx: Tx, key: str, request_hash: str) -> Admitted | None:
    row = await tx.fetch_one("SELECT id, request_hash FROM operations WHERE idempotency_key = $1", key)
    if row is None:
        return None
    if row["request_hash"] != request_hash:
        raise Conflict(
            f"the idempotency key {key!r} was used for another request (operation {row['id']}); use a new key"
        )
    return Admitted(id=row["id"], again=True)


async def _valid_intents(tx: Tx, admission: Admission) -> list[NewIntent]:
    """Leave out removed nodes, and automatic intents that newer ones have superseded."""
    if not admission.intents:
        return []
    ids = sorted({intent.node_id for intent in admission.intents})
    rows = await tx.fetch(
        f"SELECT id FROM nodes WHERE id IN ({places(len(ids))})"  # noqa: S608
        " AND removed_at IS NULL AND approved AND node_type = 'backend'",
        *ids,
    )
    there = {NodeId(row["id"]) for row in rows}
    intents = [intent for intent in admission.intents if intent.node_id in there]
    if admission.cause == "request" and not any(intent.only_if_desired for intent in intents):
        return intents
    newest = await _newest_intents(tx, intents)
    desired = [
        intent
        for intent in intents
        if _is_still_desired(admission, intent, newest.get((intent.node_id, intent.backend)))
    ]
    return await _without_superseded(tx, admission.verb, desired)


def _is_still_desired(admission: Admission, intent: NewIntent, newest: Row | None) -> bool:
    if admission.cause != "request":
        return (newest["generation"] if newest is not None else None) == intent.expected_generation
    return not intent.only_if_desired or (newest is not None and newest["verb"] != Verb.DELETE.value)


async def _without_superseded(tx: Tx, verb: Verb, intents: Sequence[NewIntent]) -> list[NewIntent]:
    """Leave out intents that conflict with a newer intent for another name."""
    corrections = [intent for intent in intents if intent.desired_generation is not None]
    if not corrections:
        return list(intents)
    conflicts = await find_conflicts(tx, verb, corrections, "newest")
    newest = {intent: max(row["generation"] for row in rows) for intent, rows in conflicts.items()}
    return [intent for intent in intents if newest.get(intent, -1) <= (intent.desired_generation or 0)]


async def find_conflicts(tx: Tx, verb: Verb, intents: Sequence[NewIntent], which: str) -> Mapping[NewIntent, list[Row]]:
    """By intent: intents for other names on the same node that exclude it. `which` column selects them."""
    if not intents:
        return {}
    ids = in_list(intent.node_id for intent in intents)
    rows = await tx.fetch(
        "SELECT id, node_id, backend, verb, spec, generation, operation_id FROM intents"  # noqa: S608
        f" WHERE {which} AND verb {'=' if verb.ensures_presence else '<>'} 'delete'"
        f" AND node_id IN ({places(len(ids))})",
        *ids,
    )
    by_node: dict[str, list[Row]] = {}
    for row in rows:
        by_node.setdefault(row["node_id"], []).append(row)
    found = {
        intent: [row for row in by_node.get(intent.node_id, ()) if _is_conflict(verb, intent, row)]
        for intent in intents
    }
    return {intent: conflicts for intent, conflicts in found.items() if conflicts}


def _is_conflict(verb: Verb, intent: NewIntent, row: Row) -> bool:
    theirs = names_in(row["backend"], decode_spec(row["spec"]))
    return row["backend"] != intent.backend and exclude_each_other(
        (verb, names_in(intent.backend, intent.spec)), (Verb(row["verb"]), theirs)
    )


async def _newest_intents(tx: Tx, intents: Sequence[NewIntent]) -> Mapping[tuple[NodeId, str], Row]:
    found: dict[tuple[NodeId, str], Row] = {}
    for backend, ids in _by_backend(intents).items():
        rows = await tx.fetch(
            "SELECT node_id, generation, verb FROM intents"  # noqa: S608
            f" WHERE newest AND backend = $1 AND node_id IN ({places(len(ids), first=2)})",
            backend,
            *ids,
        )
        found.update({(NodeId(row["node_id"]), backend): row for row in rows})
    return found


def _by_backend(intents: Sequence[NewIntent]) -> dict[str, list[NodeId]]:
    grouped: dict[str, list[NodeId]] = {}
    for intent in intents:
        grouped.setdefault(intent.backend, []).append(intent.node_id)
    return {backend: sorted(ids) for backend, ids in sorted(grouped.items())}


async def _supersede(tx: Tx, admission: Admission, intents: Sequence[NewIntent]) -> list[str]:
    """End the intents that these replace; return the operations they belonged to."""
    because = f"replaced by operation {admission.id} ({admission.verb.value})"
    conflicts = await find_conflicts(tx, admission.verb, intents, "live")
    live = [row for rows in conflicts.values() for row in rows]
    older: list[Row] = []
    for backend, ids in _by_backend(intents).items():
        older += await tx.fetch(
            "SELECT id, operation_id, live FROM intents"  # noqa: S608
            f" WHERE (live OR newest) AND backend = $1 AND node_id IN ({places(len(ids), first=2)})",
            backend,
            *ids,
        )
    await lock_operations(tx, [row["operation_id"] for row in (*live, *older)])
    await lock_intents(tx, [row["id"] for row in (*live, *older)])
    ends = await _end_live(tx, [row["id"] for row in (*live, *older)], because)
    if older:
        former = in_list(row["id"] for row in older)
        await tx.execute(f"UPDATE intents SET newest = false WHERE newest AND id IN ({places(len(former))})", *former)  # noqa: S608
    await mark_ended(tx, ends, status=NodeProgressStatus.CANCELLED, error=because)
    return sorted({operation_id for operation_id, _ in ends})


async def _release(tx: Tx, admission: Admission, generation: int) -> list[str]:
    """End what brings a version to nodes that need not have it any more; return the operations it belonged to."""
    released = await released_operations(tx, admission, generation)
    await lock_operations(tx, released)
    for operation_id in released:
        await cancel_intents(tx, operation_id, why=f"its version is no longer pinned (operation {admission.id})")
        await tx.execute("UPDATE operations SET cancel_requested = true WHERE id = $1", operation_id)
    return released


async def _end_live(tx: Tx, locked: Iterable[str], because: str) -> list[tuple[str, str]]:
    """End those that are still live; return their (operation, node)."""
    ids = in_list(locked)
    if not ids:
        return []
    gone = await tx.fetch(
        "UPDATE intents SET stop_requested = (state <> 'pending'), state = 'superseded', live = false,"  # noqa: S608
        " claim_token = NULL, last_error = $1, finished_at = now_ms(), changed_at = now_ms()"
        f" WHERE live AND id IN ({places(len(ids), first=2)}) RETURNING operation_id, node_id",
        because,
        *ids,
    )
    return [(row["operation_id"], row["node_id"]) for row in gone]


async def _failed_corrections(tx: Tx, intents: Sequence[NewIntent]) -> list[str]:
    """Earlier automatic operations for the same backends and nodes whose retries are exhausted."""
    found: set[str] = set()
    for backend, ids in _by_backend(intents).items():
        rows = await tx.fetch(
            "SELECT operation_id FROM intents JOIN operations ON operations.id = intents.operation_id"  # noqa: S608
            " WHERE intents.newest AND intents.state = 'dead_lettered' AND operations.cause <> 'request'"
            f" AND intents.backend = $1 AND intents.node_id IN ({places(len(ids), first=2)})",
            backend,
            *ids,
        )
        found |= {row["operation_id"] for row in rows}
    return sorted(found)


async def _dismiss_corrections(tx: Tx, operations: Sequence[str]) -> None:
    """Hide failed corrections that newer ones repeat: one per node is enough to see."""
    await tx.execute_many(
        "UPDATE operations SET dismissed_at = now_ms(), changed_at = now_ms() WHERE id = $1 AND dismissed_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM intents WHERE intents.operation_id = operations.id AND intents.newest"
        " AND intents.state = 'dead_lettered')",
        [(operation,) for operation in operations],
    )


async def _insert_operation(tx: Tx, admission: Admission, generation: int) -> None:
    await tx.execute(
        "INSERT INTO operations (id, verb, backend, reference, node_id, target, generation, actor, cause,"
        " idempotency_key, request_hash, state, cancel_requested, error, created_at, changed_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'running', false, '', now_ms(), now_ms())",
        admission.id,
        admission.verb.value,
        admission.backend,
        admission.reference,
        admission.node_id,
        encode_target(admission.target),
        generation,
        admission.actor,
        admission.cause,
        admission.idempotency_key,
        admission.request_hash,
    )


async def _insert_nodes(tx: Tx, admission: Admission, intents: Sequence[NewIntent], held: Mapping[NodeId, int]) -> None:
    waves = len(admission.rollout.waves) if admission.rollout is not None else 0
    queued = [
        (
            intent.node_id,
            intent.node_name,
            "queued",
            describe_held(held[intent.node_id], waves) if intent.node_id in held else intent.note,
            intent.spec.build.name,
            intent.spec.build.digest,
        )
        for intent in intents
    ]
    skipped = [(skip.node_id, skip.node_name, "not_applicable", skip.reason, "", "") for skip in admission.skipped]
    await tx.execute_many(
        "INSERT INTO operation_nodes (operation_id, node_id, node_name, status, error, variant, digest,"
        " transfer, sequence, attempts, changed_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, '', 0, 0, now_ms())",
        [(admission.id, *values) for values in (*queued, *skipped)],
    )
