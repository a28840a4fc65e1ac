"""Admitting an operation: all its rows, or none. What was acknowledged is here from then on, for every frontend."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.core.backends.conflicts import exclude_each_other, names_in
from corral.core.backends.intents import BackendSpec, Intent, Verb
from corral.core.backends.operations import Admission, NewIntent, NodeProgressStatus
from corral.core.backends.policies import Ensure, OnDrift, PolicyChange
from corral.core.errors import Conflict, OutcomeUnknown
from corral.core.nodes.node import NodeId
from corral.store.access.audit_events import append_event, tell_nodes
from corral.store.backends.intent_rows import (
    decode_wish,
    encode_wish,
    finish_operations,
    lock_intents,
    lock_operations,
    show_ended,
    touch_operations,
)
from corral.store.backends.operation_rows import encode_target
from corral.store.backends.policies import encode_selector, replace_policies
from corral.store.backends.version_holds import change_holds
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places
from corral.system import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    id: str
    again: bool = False
    """The same request came before; this is what came of it then."""


class AdmissionStore:
    def __init__(self, database: Database, ids: Ids) -> None:
        self._database, self._ids = database, ids

    async def find(self, idempotency_key: str, request_hash: str) -> Admitted | None:
        """What an earlier request with this key led to. Raises Conflict when it was another request."""

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
            # The id was made before the commit: if it is there, it was done; if not, asking again does no harm.
            return await self._database.write(body)

    async def renew(self, intent: Intent, spec: BackendSpec, note: str) -> bool:
        """Gives an open order that is not being carried out another version, with all its attempts before it. False
        when it has changed meanwhile."""

        async def body(tx: Tx) -> bool:
            await lock_operations(tx, [intent.operation_id])
            changed = await tx.execute(
                "UPDATE intents SET spec = $3, digest = $4, attempts = 0, due_at = now_ms(), last_error = $5,"
                " changed_at = now_ms() WHERE id = $1 AND generation = $2 AND live AND state = 'pending'"
                " AND NOT cancel_requested",
                intent.id,
                intent.generation,
                encode_wish(spec),
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
            detail = {"operation": intent.operation_id, "reason": note, **tell_nodes([intent.node_id])}
            await append_event(
                tx, actor="policy", action="backend.resolved_again", subject=intent.backend, detail=detail
            )
            await touch_operations(tx, [intent.operation_id])
            return True

        return await self._database.write(body)

    async def _admit(self, tx: Tx, admission: Admission) -> None:
        generation = await next_generation(tx)
        orders = await _valid_orders(tx, admission)
        replaced_corrections = await _failed_corrections(tx, orders) if admission.cause != "request" else []
        replaced = await _supersede(tx, admission, orders)
        await _insert_operation(tx, admission, generation)
        await _insert_nodes(tx, admission, orders)
        await tx.execute_many(
            "INSERT INTO intents (id, node_id, backend, verb, generation, operation_id, wave, spec, digest, state,"
            " live, newest, attempts, due_at, last_error, cancel_requested, fence, lease_until, created_at, changed_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', true, true, 0, now_ms(), '', false, 0, 0,"
            " now_ms(), now_ms())",
            [
                (
                    self._ids.uuid(),
                    order.node_id,
                    order.backend,
                    (order.verb or admission.verb).value,
                    generation,
                    admission.id,
                    order.wave,
                    encode_wish(order.spec),
                    order.spec.build.digest,
                )
                for order in orders
            ],
        )
        if admission.policy is not None:
            await self._change_policy(tx, admission, admission.policy, generation)
        if admission.cause == "request" and admission.target.is_lasting:
            await change_holds(tx, admission, orders, generation, ids=self._ids)
        elif admission.cause != "request":
            await _dismiss_corrections(tx, replaced_corrections)
        await append_event(
            tx,
            actor=admission.actor,
            action=f"backend.{admission.verb.value}",
            subject=admission.backend,
            detail={"operation": admission.id, "cause": admission.cause, **tell_nodes(_by_name(orders))},
        )
        await touch_operations(tx, replaced)
        await finish_operations(tx, [admission.id, *replaced])

    async def _change_policy(self, tx: Tx, admission: Admission, change: PolicyChange, generation: int) -> None:
        selector = encode_selector(change.selector)
        before = await tx.fetch(
            "SELECT selector, on_drift FROM backend_policies WHERE backend = $1 AND ended_at IS NULL FOR UPDATE",
            admission.backend,
        )
        kept = next((OnDrift(row["on_drift"]) for row in before if row["selector"] == selector), OnDrift.HEAL)
        await replace_policies(tx, admission.backend, selector, operation_id=admission.id)
        on_drift = change.on_drift or (kept if change.ensure is Ensure.PRESENT else OnDrift.HEAL)
        await tx.execute(
            "INSERT INTO backend_policies (id, backend, selector, ensure, spec, on_drift, generation, operation_id,"
            " created_by, created_at, changed_at, ended_because)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now_ms(), now_ms(), '')",
            self._ids.uuid(),
            admission.backend,
            selector,
            change.ensure.value,
            encode_wish(change.spec),
            on_drift.value,
            generation,
            admission.id,
            admission.actor,
        )


def _by_name(orders: Sequence[NewIntent]) -> list[NodeId]:
    return [order.node_id for order in sorted(orders, key=lambda order: order.node_name)]


async def next_generation(tx: Tx) -> int:
    """Higher than every one before, in the whole fleet. Who admits holds this row, so admissions have one order.

    From the store's clock, so that a store begun anew still goes before what its workers remember of the old one."""
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
        raise Conflict(f"the idempotency key {key!r} was used for another request ({row['id']}); take a new one")
    return Admitted(id=row["id"], again=True)


async def _valid_orders(tx: Tx, admission: Admission) -> list[NewIntent]:
    """Without nodes that went meanwhile, and without orders nobody asked for that newer ones have overtaken."""
    if not admission.intents:
        return []
    ids = sorted({order.node_id for order in admission.intents})
    rows = await tx.fetch(
        f"SELECT id FROM nodes WHERE id IN ({places(len(ids))})"  # noqa: S608
        " AND removed_at IS NULL AND approved AND node_type = 'backend'",
        *ids,
    )
    there = {NodeId(row["id"]) for row in rows}
    orders = [order for order in admission.intents if order.node_id in there]
    if admission.cause == "request" and not any(order.only_if_desired for order in orders):
        return orders
    newest = await _newest_orders(tx, orders)
    wanted = [order for order in orders if _still_wanted(admission, order, newest.get((order.node_id, order.backend)))]
    return await _without_overtaken(tx, admission.verb, wanted)


def _still_wanted(admission: Admission, order: NewIntent, newest: Row | None) -> bool:
    if admission.cause != "request":
        return (newest["generation"] if newest is not None else None) == order.expected_generation
    return not order.only_if_desired or (newest is not None and newest["verb"] != Verb.DELETE.value)


async def _without_overtaken(tx: Tx, verb: Verb, orders: Sequence[NewIntent]) -> list[NewIntent]:
    """Without those that a newer spec under another name excludes."""
    healing = [order for order in orders if order.desired_generation is not None]
    if not healing:
        return list(orders)
    rivals = await find_rivals(tx, verb, healing, "newest")
    newest = {order: max(row["generation"] for row in rows) for order, rows in rivals.items()}
    return [order for order in orders if newest.get(order, -1) <= (order.desired_generation or 0)]


async def find_rivals(tx: Tx, verb: Verb, orders: Sequence[NewIntent], which: str) -> Mapping[NewIntent, list[Row]]:
    """By order: what is wanted of its node under other names and cannot be true beside it."""
    if not orders:
        return {}
    ids = in_list(order.node_id for order in orders)
    rows = await tx.fetch(
        "SELECT id, node_id, backend, verb, spec, generation, operation_id FROM intents"  # noqa: S608
        f" WHERE {which} AND verb {'=' if verb.ensures_presence else '<>'} 'delete'"
        f" AND node_id IN ({places(len(ids))})",
        *ids,
    )
    by_node: dict[str, list[Row]] = {}
    for row in rows:
        by_node.setdefault(row["node_id"], []).append(row)
    found = {order: [row for row in by_node.get(order.node_id, ()) if _is_rival(verb, order, row)] for order in orders}
    return {order: rivals for order, rivals in found.items() if rivals}


def _is_rival(verb: Verb, order: NewIntent, row: Row) -> bool:
    theirs = names_in(row["backend"], decode_wish(row["spec"]))
    return row["backend"] != order.backend and exclude_each_other(
        (verb, names_in(order.backend, order.spec)), (Verb(row["verb"]), theirs)
    )


async def _newest_orders(tx: Tx, orders: Sequence[NewIntent]) -> Mapping[tuple[NodeId, str], Row]:
    found: dict[tuple[NodeId, str], Row] = {}
    for backend, ids in _by_backend(orders).items():
        rows = await tx.fetch(
            "SELECT node_id, generation, verb FROM intents"  # noqa: S608
            f" WHERE newest AND backend = $1 AND node_id IN ({places(len(ids), first=2)})",
            backend,
            *ids,
        )
        found.update({(NodeId(row["node_id"]), backend): row for row in rows})
    return found


def _by_backend(orders: Sequence[NewIntent]) -> dict[str, list[NodeId]]:
    grouped: dict[str, list[NodeId]] = {}
    for order in orders:
        grouped.setdefault(order.backend, []).append(order.node_id)
    return {backend: sorted(ids) for backend, ids in sorted(grouped.items())}


async def _supersede(tx: Tx, admission: Admission, orders: Sequence[NewIntent]) -> list[str]:
    """Ends what these orders replace; the operations that lost an order by it."""
    because = f"replaced by operation {admission.id} ({admission.verb.value})"
    rivals = await find_rivals(tx, admission.verb, orders, "live")
    live = [row for rows in rivals.values() for row in rows]
    older: list[Row] = []
    for backend, ids in _by_backend(orders).items():
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
    await show_ended(tx, ends, status=NodeProgressStatus.CANCELLED, error=because)
    return sorted({operation_id for operation_id, _ in ends})


async def _end_live(tx: Tx, locked: Iterable[str], because: str) -> list[tuple[str, str]]:
    """(operation, node) of those that had not ended meanwhile."""
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


async def _failed_corrections(tx: Tx, orders: Sequence[NewIntent]) -> list[str]:
    """Operations by which desired state tried the same before, in vain."""
    found: set[str] = set()
    for backend, ids in _by_backend(orders).items():
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
    """One failed correction of a node is enough to see; the next one tells the same."""
    await tx.execute_many(
        "UPDATE operations SET dismissed_at = now_ms(), changed_at = now_ms() WHERE id = $1 AND dismissed_at IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM intents WHERE intents.operation_id = operations.id AND intents.newest"
        " AND intents.state = 'dead_lettered')",
        [(operation,) for operation in operations],
    )


async def _insert_operation(tx: Tx, admission: Admission, generation: int) -> None:
    await tx.execute(
        "INSERT INTO operations (id, verb, backend, reference, node_id, target, generation, actor, cause, plan,"
        " idempotency_key, request_hash, state, cancel_requested, error, created_at, changed_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'running', false, '', now_ms(), now_ms())",
        admission.id,
        admission.verb.value,
        admission.backend,
        admission.reference,
        admission.node_id,
        encode_target(admission.target),
        generation,
        admission.actor,
        admission.cause,
        admission.plan,
        admission.idempotency_key,
        admission.request_hash,
    )


async def _insert_nodes(tx: Tx, admission: Admission, orders: Sequence[NewIntent]) -> None:
    ordered = [
        (order.node_id, order.node_name, "queued", order.note, order.spec.build.name, order.spec.build.digest)
        for order in orders
    ]
    left_out = [(skip.node_id, skip.node_name, "not_applicable", skip.reason, "", "") for skip in admission.skipped]
    await tx.execute_many(
        "INSERT INTO operation_nodes (operation_id, node_id, node_name, status, error, variant, digest,"
        " transfer, sequence, attempts, changed_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, '', 0, 0, now_ms())",
        [(admission.id, *values) for values in (*ordered, *left_out)],
    )
