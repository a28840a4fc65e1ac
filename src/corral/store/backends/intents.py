"""Claims and results of intents. A claim is a lease with a token and a fence: results of a former holder are void."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from corral.core.backends.conflicts import names_in
from corral.core.backends.deletions import DeletedBackends
from corral.core.backends.intents import DONE_BEFORE_CANCEL, BackendSpec, Intent, IntentState, NextStep, Verb
from corral.core.backends.operations import status_after
from corral.core.backends.policies import Ensure, Policy
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.presence import Presence
from corral.store.backends.create_operation import next_generation
from corral.store.backends.intent_rows import (
    COLUMNS,
    NO_OPEN_ROLLOUT,
    SELECT_INTENT,
    decode_spec,
    encode_proof,
    finish_operations,
    lock_intents,
    lock_operations,
    read_intent_row,
    touch_operations,
)
from corral.store.backends.observed import read_node_backends
from corral.store.backends.operation_rows import read_requester_rows
from corral.store.backends.prune import has_prunable, prune_intents
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places

CLAIM_AGAIN_MS = 2000
COMMAND_IN_FLIGHT_MS = 3000
_HEALTHY = (
    "EXISTS (SELECT 1 FROM nodes WHERE nodes.id = intents.node_id AND nodes.removed_at IS NULL AND nodes.approved"
    " AND nodes.node_type = 'backend' AND nodes.presence = 'live' AND NOT nodes.drain_requested"
    " AND NOT nodes.worker_draining)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentClaim:
    intent: Intent
    node_name: str
    is_localai: bool
    presence: Presence
    epoch: int
    """Of the node's worker: a report with a higher one is from a new process, which does not know this intent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """An intent that is over, but that its worker may still be running."""

    intent_id: str
    node_id: NodeId
    operation_id: str


@dataclass(frozen=True, slots=True)
class Result:
    intent: Intent
    """As it was claimed."""
    step: NextStep


class IntentStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, token: str, *, lease_s: float, limit: int) -> list[IntentClaim]:
        """Claim due intents of healthy nodes, and intents to be cancelled on any node; oldest first."""

        due = (
            f"live AND NOT held AND due_at <= now_ms() AND lease_until <= now_ms() AND (cancel_requested OR {_HEALTHY})"
        )

        async def body(tx: Tx) -> list[IntentClaim]:
            first = await tx.fetch(
                f"SELECT operation_id FROM intents WHERE {due} ORDER BY due_at, id LIMIT $1",  # noqa: S608
                limit,
            )
            return await _take(tx, token, [row["operation_id"] for row in first], due, lease_s=lease_s, limit=limit)

        return await self._database.write(body)

    async def claim_shown(self, token: str, intents: Sequence[Intent], *, lease_s: float) -> list[IntentClaim]:
        """Claim those of these unconfirmed intents that nobody holds, due or not: a report shows that the worker is
        done. Intents that changed a moment ago are left out."""
        ids = in_list(intent.id for intent in intents)
        idle = (
            f"state = 'unconfirmed' AND lease_until <= now_ms() AND changed_at <= now_ms() - {CLAIM_AGAIN_MS}"
            f" AND NOT cancel_requested AND {_HEALTHY} AND id IN ({places(len(ids), first=2)})"
        )

        async def body(tx: Tx) -> list[IntentClaim]:
            operations = [intent.operation_id for intent in intents]
            return await _take(tx, token, operations, idle, *ids, lease_s=lease_s, limit=len(ids))

        return await self._database.write(body)

    async def renew(self, token: str, ids: Iterable[str], *, lease_s: float) -> set[str]:
        """Extend these claims; return the ids of those that are still held."""
        ordered = in_list(ids)
        if not ordered:
            return set()

        async def body(tx: Tx) -> set[str]:
            await lock_intents(tx, ordered)
            rows = await tx.fetch(
                "UPDATE intents SET lease_until = now_ms() + $2"  # noqa: S608
                f" WHERE claim_token = $1 AND live AND id IN ({places(len(ordered), first=3)}) RETURNING id",
                token,
                int(lease_s * 1000),
                *ordered,
            )
            return {row["id"] for row in rows}

        return await self._database.write(body)

    async def release(self, token: str) -> None:
        """End all claims of this token now, so that others need not wait until they expire."""

        async def body(tx: Tx) -> None:
            rows = await tx.fetch("SELECT id FROM intents WHERE claim_token = $1 AND live", token)
            await lock_intents(tx, [row["id"] for row in rows])
            await tx.execute("UPDATE intents SET lease_until = 0 WHERE claim_token = $1 AND live", token)

        await self._database.write(body)

    async def read_stops(self) -> list[Stop]:
        """Intents that live workers must still be told to stop."""

        async def body(tx: Tx) -> list[Stop]:
            rows = await tx.fetch(
                "SELECT intents.id, intents.node_id, intents.operation_id FROM intents"
                " JOIN nodes ON nodes.id = intents.node_id WHERE intents.stop_requested AND NOT intents.live"
                " AND nodes.removed_at IS NULL AND nodes.presence = 'live' AND nodes.key_hash IS NOT NULL"
            )
            return [
                Stop(intent_id=row["id"], node_id=NodeId(row["node_id"]), operation_id=row["operation_id"])
                for row in rows
            ]

        return await self._database.read(body)

    async def note_stopped(self, intent_id: str) -> None:
        """The worker reports that it runs nothing of the intent. This counts only some time after the intent ended: a
        command may still have been on its way to the worker."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE intents SET stop_requested = false WHERE id = $1 AND NOT live AND finished_at <= now_ms() - $2",
                intent_id,
                COMMAND_IN_FLIGHT_MS,
            )

        await self._database.write(body)

    async def read_held(self, token: str) -> dict[str, bool]:
        """Intents that this token still holds: by id, whether a cancellation was requested."""

        async def body(tx: Tx) -> dict[str, bool]:
            rows = await tx.fetch("SELECT id, cancel_requested FROM intents WHERE claim_token = $1 AND live", token)
            return {row["id"]: bool(row["cancel_requested"]) for row in rows}

        return await self._database.read(body)

    async def record(self, results: Sequence[Result]) -> set[str]:
        """Write the results of claims that are still held, in one transaction; return the ids of those."""
        by_id = {result.intent.id: result for result in results}

        async def body(tx: Tx) -> set[str]:
            higher = {
                result.intent.id: await next_generation(tx) for result in results if result.step.higher_generation
            }
            await lock_operations(tx, [result.intent.operation_id for result in results])
            ids = in_list(by_id)
            held = await tx.fetch(
                "SELECT id, claim_token, fence, cancel_requested, verb, (SELECT cause FROM operations"  # noqa: S608
                " WHERE operations.id = intents.operation_id) AS cause FROM intents"
                f" WHERE live AND id IN ({places(len(ids))}) ORDER BY id FOR UPDATE",
                *ids,
            )
            valid = [
                _unless_taken_back(row, by_id[row["id"]]) for row in held if _is_held(row, by_id[row["id"]].intent)
            ]
            await _write_results(tx, valid, higher)
            operations = [result.intent.operation_id for result in valid]
            await touch_operations(tx, operations)
            await finish_operations(tx, operations)
            return {result.intent.id for result in valid}

        return await self._database.write(body)

    async def read_unconfirmed(self) -> list[tuple[Intent, list[ObservedBackend]]]:
        """Unconfirmed intents that nobody holds, with the observed backends of their nodes; without nodes that have
        never reported."""

        async def body(tx: Tx) -> list[tuple[Intent, list[ObservedBackend]]]:
            rows = await tx.fetch(f"{SELECT_INTENT} WHERE state = 'unconfirmed' AND lease_until <= now_ms()")
            intents = [read_intent_row(row) for row in rows]
            observed = await read_node_backends(tx, [intent.node_id for intent in intents])
            return [(intent, observed[intent.node_id]) for intent in intents if intent.node_id in observed]

        return await self._database.read(body)

    async def read_newest(self, ids: Iterable[NodeId] | None = None) -> list[Intent]:
        """The newest intent of every backend, live or not, on all nodes or on these."""
        chosen = None if ids is None else in_list(ids)
        where = "" if chosen is None else f" AND node_id IN ({places(len(chosen))})"

        async def body(tx: Tx) -> list[Intent]:
            if chosen == []:
                return []
            rows = await tx.fetch(f"{SELECT_INTENT} WHERE newest{where}", *(chosen or ()))
            return [read_intent_row(row) for row in rows]

        return await self._database.read(body)

    async def read_restored(self, cancelled: Sequence[Intent]) -> list[Intent]:
        """For newest intents that were cancelled: the previous one, which holds again if it installs something. A
        cancelled correction stays cancelled: a person decided against it."""
        if not cancelled:
            return []
        ids = in_list(intent.id for intent in cancelled)
        before = (
            "SELECT (SELECT older.id FROM intents older JOIN operations ON operations.id = older.operation_id"  # noqa: S608
            " WHERE older.node_id = last.node_id AND older.backend = last.backend"
            " AND NOT (older.state = 'cancelled' AND operations.cause = 'request')"
            " ORDER BY older.generation DESC LIMIT 1)"
            f" FROM intents last WHERE last.id IN ({places(len(ids))})"
        )

        async def body(tx: Tx) -> list[Intent]:
            rows = await tx.fetch(
                f"{SELECT_INTENT} WHERE id IN ({before}) AND verb <> 'delete' AND state <> 'cancelled'",
                *ids,
            )
            return [read_intent_row(row) for row in rows]

        return await self._database.read(body)

    async def read_deletes(self, policies: Sequence[Policy]) -> DeletedBackends:
        """Deleted backends, by intents and by the given policies in force."""
        absent = in_list({policy.backend for policy in policies if policy.ensure is Ensure.ABSENT})
        also = f" OR backend IN ({places(len(absent))})" if absent else ""

        async def body(tx: Tx) -> DeletedBackends:
            rows = await tx.fetch(f"{SELECT_INTENT} WHERE newest AND (verb = 'delete'{also})", *absent)
            intents = [read_intent_row(row) for row in rows]
            intents += await _read_installs_since(tx, intents, policies)
            requesters = await read_requester_rows(tx, {one.operation_id for one in intents if one.verb is Verb.DELETE})
            return DeletedBackends(policies=policies, intents=intents, requesters=requesters)

        return await self._database.read(body)

    async def read_changed(self, since_ms: int) -> tuple[int, set[NodeId], bool]:
        """The store's time; nodes that changed since then in their row, their report or their intents; and whether a
        policy or a pin changed."""

        async def body(tx: Tx) -> tuple[int, set[NodeId], bool]:
            rows = await tx.fetch(
                "SELECT id AS node_id FROM nodes WHERE changed_at >= $1"
                " UNION SELECT node_id FROM observed_nodes WHERE changed_at >= $1"
                " UNION SELECT node_id FROM intents WHERE changed_at >= $1",
                since_ms,
            )
            policy = await tx.fetch_one(
                "SELECT (SELECT max(changed_at) FROM backend_policies) AS policies,"
                " (SELECT max(changed_at) FROM version_pins) AS pins, now_ms() AS now"
            )
            assert policy is not None
            changed = max(policy["policies"] or 0, policy["pins"] or 0) >= since_ms
            return policy["now"], {NodeId(row["node_id"]) for row in rows}, changed

        return await self._database.read(body)

    async def read_mark(self) -> tuple[int, ...]:
        """A value that differs after any change of nodes, reports, intents, policies or pins."""

        async def body(tx: Tx) -> tuple[int, ...]:
            row = await tx.fetch_one(
                "SELECT (SELECT max(changed_at) FROM nodes) AS nodes,"
                " (SELECT max(changed_at) FROM observed_nodes) AS observed,"
                " (SELECT max(changed_at) FROM intents) AS intents,"
                " (SELECT max(changed_at) FROM backend_policies) AS policies,"
                " (SELECT max(changed_at) FROM version_pins) AS pins"
            )
            assert row is not None
            return tuple(at or 0 for at in row)

        return await self._database.read(body)

    async def read_some(
        self, *, node_id: str | None, backend: str | None, state: str | None, limit: int
    ) -> list[Intent]:
        """Intents that match, live or not, newest first."""
        filters = {"node_id": node_id, "backend": backend, "state": state}
        given = [(column, value) for column, value in filters.items() if value is not None]
        where = " AND ".join(f"{column} = ${position}" for position, (column, _) in enumerate(given, 2)) or "true"

        async def body(tx: Tx) -> list[Intent]:
            rows = await tx.fetch(
                f"{SELECT_INTENT} WHERE {where} ORDER BY generation DESC, id LIMIT $1",
                limit,
                *(value for _, value in given),
            )
            return [read_intent_row(row) for row in rows]

        return await self._database.read(body)

    async def find_specs(self, backend: str) -> dict[str, BackendSpec]:
        """By digest: the last spec by which a node got that version of the backend."""

        async def body(tx: Tx) -> dict[str, BackendSpec]:
            rows = await tx.fetch(
                "SELECT digest, spec FROM intents WHERE backend = $1 AND digest <> ''"
                " AND verb IN ('install', 'upgrade') AND state = 'succeeded' ORDER BY generation",
                backend,
            )
            return {row["digest"]: decode_spec(row["spec"]) for row in rows}

        return await self._database.read(body)

    async def finish_idle(self) -> list[str]:
        """End live intents of removed nodes, and operations that are open without a live intent; return the latter."""

        async def find(tx: Tx) -> tuple[bool, list[str]]:
            rows = await tx.fetch(
                "SELECT id FROM operations WHERE finished_at IS NULL AND NOT EXISTS"  # noqa: S608
                " (SELECT 1 FROM intents WHERE intents.operation_id = operations.id AND intents.live)"
                f" AND {NO_OPEN_ROLLOUT} LIMIT 100"
            )
            return await has_prunable(tx), [row["id"] for row in rows]

        prunable, idle = await self._database.read(find)
        if not prunable and not idle:
            return []

        async def body(tx: Tx) -> list[str]:
            if prunable:
                await prune_intents(tx, also=idle)
            else:
                await lock_operations(tx, idle)
            return await finish_operations(tx, idle)

        return await self._database.write(body)


def _is_held(row: Row, intent: Intent) -> bool:
    return bool(row["claim_token"] == intent.claim_token and row["fence"] == intent.fence)


def _unless_taken_back(row: Row, result: Result) -> Result:
    """A change that was done although it had been cancelled is no longer desired."""
    taken_back = row["cancel_requested"] and row["cause"] == "request" and Verb(row["verb"]).is_undone_by_cancel
    if not taken_back or result.step.state is not IntentState.SUCCEEDED:
        return result
    step = replace(result.step, state=IntentState.CANCELLED, error=DONE_BEFORE_CANCEL)
    return replace(result, step=step)


async def _read_installs_since(tx: Tx, intents: Sequence[Intent], policies: Sequence[Policy]) -> list[Intent]:
    """Later intents that install a backend under a name that was deleted. It may return some that do not."""
    deletes = [intent for intent in intents if intent.verb is Verb.DELETE]
    absent = [policy for policy in policies if policy.ensure is Ensure.ABSENT]
    names = {name for intent in deletes for name in names_in(intent.backend, intent.spec)}
    names |= {name for policy in absent for name in names_in(policy.backend, policy.spec)}
    if not names:
        return []
    known = {intent.id for intent in intents}
    keys = sorted(names)
    mentions = " OR ".join(f"spec LIKE ${position}" for position in range(2 + len(keys), 2 + 2 * len(keys)))
    rows = await tx.fetch(
        f"{SELECT_INTENT} WHERE newest AND verb <> 'delete' AND generation > $1"
        f" AND (backend IN ({places(len(keys), first=2)}) OR {mentions})",
        min([intent.generation for intent in deletes] + [policy.generation for policy in absent]),
        *keys,
        *(f"%{msgspec.json.encode(name).decode()}%" for name in keys),
    )
    return [intent for intent in map(read_intent_row, rows) if intent.id not in known]


async def _take(
    tx: Tx, token: str, operations: Sequence[str], which: str, *args: object, lease_s: float, limit: int
) -> list[IntentClaim]:
    """Claim intents of these operations that match the condition `which`, whose arguments are $2 and following."""
    if not operations:
        return []
    await lock_operations(tx, operations)
    within = in_list(operations)
    free = await tx.fetch(
        f"SELECT id FROM intents WHERE {which} AND operation_id IN ({places(len(within), first=2 + len(args))})"  # noqa: S608
        " ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED",
        limit,
        *args,
        *within,
    )
    if not free:
        return []
    ids = in_list(row["id"] for row in free)
    rows = await tx.fetch(
        "UPDATE intents SET state = CASE WHEN state = 'pending' THEN 'running' ELSE state END,"  # noqa: S608
        " claim_token = $1, fence = fence + 1, lease_until = now_ms() + $2, changed_at = now_ms()"
        f" WHERE live AND id IN ({places(len(ids), first=3)}) RETURNING {', '.join(COLUMNS)}",
        token,
        int(lease_s * 1000),
        *ids,
    )
    intents = [read_intent_row(row) for row in rows]
    await _show_started(tx, intents)
    return await _with_nodes(tx, intents)


async def _show_started(tx: Tx, intents: Sequence[Intent]) -> None:
    """Reset the progress of new attempts; attempts that are taken over or confirmed again continue where they were."""
    started: dict[str, list[str]] = {}
    for intent in intents:
        if not intent.cancel_requested:
            started.setdefault(intent.operation_id, []).append(intent.node_id)
    for operation_id, nodes in started.items():
        ids = in_list(nodes)
        await tx.execute(
            "UPDATE operation_nodes SET sequence = 0, transfer = ''"  # noqa: S608
            " WHERE status NOT IN ('downloading', 'running_on_worker') AND operation_id = $1"
            f" AND node_id IN ({places(len(ids), first=2)})",
            operation_id,
            *ids,
        )
        await tx.execute(
            "UPDATE operation_nodes SET sequence = 0, next_attempt_at = NULL, changed_at = now_ms(),"  # noqa: S608
            " status = CASE WHEN status = 'running_on_worker' THEN status ELSE 'downloading' END"
            f" WHERE operation_id = $1 AND node_id IN ({places(len(ids), first=2)})",
            operation_id,
            *ids,
        )
    await touch_operations(tx, [intent.operation_id for intent in intents])


async def _with_nodes(tx: Tx, intents: Sequence[Intent]) -> list[IntentClaim]:
    ids = in_list(intent.node_id for intent in intents)
    rows = await tx.fetch(
        f"SELECT id, name, key_hash, presence, epoch FROM nodes WHERE id IN ({places(len(ids))})",  # noqa: S608
        *ids,
    )
    nodes = {row["id"]: row for row in rows}
    return [
        IntentClaim(
            intent=intent,
            node_name=nodes[intent.node_id]["name"],
            is_localai=nodes[intent.node_id]["key_hash"] is None,
            presence=Presence(nodes[intent.node_id]["presence"]),
            epoch=nodes[intent.node_id]["epoch"],
        )
        for intent in intents
    ]


async def _write_results(tx: Tx, results: Sequence[Result], higher: Mapping[str, int]) -> None:
    for result in results:
        if result.step.higher_generation:
            generation = higher[result.intent.id]
            await tx.execute("UPDATE intents SET generation = $2 WHERE id = $1", result.intent.id, generation)
    # Equal results of one operation are written together: a thousand nodes cost no more statements than one.
    alike: dict[tuple[NextStep, str], list[Intent]] = {}
    for result in results:
        alike.setdefault((result.step, result.intent.operation_id), []).append(result.intent)
    for (step, operation_id), intents in alike.items():
        await _write_step(tx, step, [intent.id for intent in intents])
        await _show_step(tx, step, operation_id, [intent.node_id for intent in intents])


async def _write_step(tx: Tx, step: NextStep, intents: Iterable[str]) -> None:
    ids = in_list(intents)
    await tx.execute(
        "UPDATE intents SET state = $1, live = $2, attempts = $3, due_at = now_ms() + $4, last_error = $5,"  # noqa: S608
        " claim_token = NULL, lease_until = 0, changed_at = now_ms(),"
        " finished_at = CASE WHEN $2 THEN NULL ELSE now_ms() END, epoch_at_end = CASE WHEN $1 = 'dead_lettered'"
        " THEN (SELECT epoch FROM nodes WHERE nodes.id = intents.node_id) ELSE NULL END,"
        " free_disk_at_end = CASE WHEN $1 = 'dead_lettered'"
        " THEN (SELECT available_disk FROM nodes WHERE nodes.id = intents.node_id) ELSE NULL END,"
        " conditions_at_end = CASE WHEN $1 = 'dead_lettered'"
        " THEN (SELECT conditions FROM nodes WHERE nodes.id = intents.node_id) ELSE NULL END,"
        " digest = CASE WHEN $6 = '' THEN digest ELSE $6 END, stop_requested = $7, final = $8,"
        " version_failed = $9, proof = $10"
        f" WHERE id IN ({places(len(ids), first=11)})",
        step.state.value,
        step.state.live,
        step.attempts,
        int(step.due_in_s * 1000),
        step.error,
        step.digest,
        step.stop_requested,
        step.final,
        step.version_failed,
        encode_proof(step.proof),
        *ids,
    )


async def _show_step(tx: Tx, step: NextStep, operation_id: str, nodes: Iterable[str]) -> None:
    ids = in_list(nodes)
    await tx.execute(
        "UPDATE operation_nodes SET status = $2, error = $3, attempts = $4,"  # noqa: S608
        " next_attempt_at = CASE WHEN $5 > 0 THEN now_ms() + $5 ELSE NULL END,"
        " digest = CASE WHEN $6 = '' THEN digest ELSE $6 END, changed_at = now_ms()"
        f" WHERE operation_id = $1 AND node_id IN ({places(len(ids), first=7)})",
        operation_id,
        status_after(step).value,
        step.error,
        step.attempts,
        int(step.due_in_s * 1000) if step.state.live else 0,
        "" if step.version_failed else step.digest,
        *ids,
    )
