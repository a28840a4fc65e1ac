"""Rollouts: waves of operations that change a version, their nodes, their gates and what happened."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from corral.core.backends.gates import GateVerdict
from corral.core.backends.intents import IntentState, Verb
from corral.core.backends.operations import Admission, NewIntent
from corral.core.backends.rollout_overlap import refuse_same_version, take_over
from corral.core.backends.rollouts import (
    HeldBack,
    PerNode,
    Rollout,
    RolloutMember,
    RolloutNode,
    RolloutOptions,
    RolloutPlan,
    RolloutState,
    Strategy,
    VersionChange,
    WaveRecord,
    complete_builds,
    describe_replaced,
    find_held_back_versions,
)
from corral.core.errors import Conflict, NotFound
from corral.core.nodes.node import NodeId
from corral.store.access.audit_events import append_event
from corral.store.backends.intent_rows import (
    decode_proof,
    decode_spec,
    finish_operations,
    lock_intents,
    lock_operations,
    touch_operations,
)
from corral.store.backends.operation_rows import decode_target
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.leases import Lease, check_held
from corral.store.engine.sql import in_list, places

RECENT = 50
MAX_TEXT = 2000
_decode_options = msgspec.json.Decoder(RolloutOptions).decode
_decode_builds = msgspec.json.Decoder(tuple[VersionChange, ...]).decode
_decode_verdicts = msgspec.json.Decoder(tuple[GateVerdict, ...]).decode
_OPEN = "rollouts.ended_at IS NULL"
_SELECT = (
    "SELECT rollouts.*, operations.target, operations.verb, operations.actor FROM rollouts"
    " JOIN operations ON operations.id = rollouts.operation_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEvent:
    at: int
    wave: int
    actor: str
    kind: str
    text: str


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


# Within transactions of operations


async def settle_overlap(tx: Tx, admission: Admission, intents: Sequence[NewIntent]) -> RolloutPlan | None:
    """The plan of a new operation beside rollouts that have not ended on its nodes. Raises Conflict if one of them is
    bringing the same version."""
    ids = in_list({intent.node_id for intent in intents})
    if admission.cause != "request" or not ids:
        return admission.rollout
    rollouts = await _read(
        tx,
        f"WHERE gated AND ({_OPEN} OR EXISTS (SELECT 1 FROM intents WHERE intents.live"  # noqa: S608
        " AND intents.operation_id = rollouts.rollback_operation_id)) AND rollouts.operation_id IN"
        f" (SELECT operation_id FROM rollout_nodes WHERE node_id IN ({places(len(ids))})) ORDER BY rollouts.created_at",
        *ids,
    )
    others = [one for one in rollouts if one.rollback_operation_id != admission.id]
    if admission.verb.ensures_presence:
        refuse_same_version(intents, others)
    return None if admission.rollout is None else take_over(admission.rollout, intents, others)


async def insert_rollout(tx: Tx, admission: Admission, plan: RolloutPlan) -> None:
    """Write the rollout of a new operation. Its first wave begins at once."""
    await tx.execute(
        "INSERT INTO rollouts (operation_id, backend, strategy, gated, state, wave, wave_count, options, builds,"
        " reason, created_at, changed_at) VALUES ($1, $2, $3, $4, 'running', 0, $5, $6, $7, '', now_ms(), now_ms())",
        admission.id,
        admission.backend,
        plan.strategy.value,
        plan.is_gated,
        len(plan.waves),
        _encode(plan.options),
        _encode(plan.builds),
    )
    await tx.execute_many(
        "INSERT INTO rollout_nodes (operation_id, node_id, node_name, wave, node_class, build, previous_version,"
        " previous_digest, serves, method, inherited) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        [
            (
                admission.id,
                one.node_id,
                one.node_name,
                wave,
                one.node_class,
                one.build,
                one.previous_version,
                one.previous_digest,
                one.serves,
                one.method,
                one.inherited,
            )
            for wave, members in enumerate(plan.waves)
            for one in members
        ],
    )
    await _begin_wave(tx, admission.id, 0)
    await _note(tx, admission.id, 0, actor=admission.actor, kind="started", text=_describe_plan(plan))


def held_nodes(plan: RolloutPlan | None) -> dict[NodeId, int]:
    """Nodes whose wave begins later, with the number of that wave."""
    if plan is None:
        return {}
    return {one.node_id: wave for wave, members in enumerate(plan.waves) if wave for one in members}


def describe_held(wave: int, count: int) -> str:
    """Shown with a node that waits for its wave."""
    return f"waits for wave {wave + 1} of {count}"


def _describe_plan(plan: RolloutPlan) -> str:
    sizes = ", ".join(str(len(members)) for members in plan.waves)
    return f"{plan.strategy.value}: {sizes} {'node' if sizes == '1' else 'nodes'}"


async def abort_rollout(tx: Tx, operation_id: str, *, reason: str, actor: str, rollback_id: str) -> bool:
    """The operation is being cancelled: nodes that the rollout has reached go back. False without an open rollout."""
    return await _go_back(tx, operation_id, RolloutState.ABORTED, reason=reason, actor=actor, rollback_id=rollback_id)


async def fail_open_rollout(tx: Tx, rollout: Rollout, *, reason: str, rollback_id: str, lease: Lease | None) -> bool:
    """A gate failed. False if the rollout has changed meanwhile."""
    if not await _lock(tx, rollout, lease):
        return False
    return await _go_back(
        tx, rollout.operation_id, RolloutState.FAILED, reason=reason, actor="rollout", rollback_id=rollback_id
    )


async def check_retry(tx: Tx, operation_id: str) -> None:
    """A retry would start nodes although gates have failed, or someone aborted the rollout. Nodes that are late for a
    rollout that completed may be retried."""
    row = await tx.fetch_one("SELECT state FROM rollouts WHERE operation_id = $1 AND gated", operation_id)
    if row is None:
        return
    match RolloutState(row["state"]):
        case RolloutState.ROLLING_BACK:
            raise Conflict(
                f"rollout {operation_id} is rolling back and cannot be retried; `corral rollouts watch {operation_id}`"
                " shows when that has ended"
            )
        case RolloutState.FAILED:
            raise Conflict(
                f"rollout {operation_id} failed and cannot be retried; allow its version with `corral rollouts allow"
                f" {operation_id}`, then upgrade again"
            )
        case RolloutState.ABORTED:
            raise Conflict(f"rollout {operation_id} was aborted and cannot be retried; upgrade again instead")


async def check_abort(tx: Tx, operation_id: str) -> None:
    """What a rollout that has ended changed stays, also while its operation goes on for a node that is late."""
    row = await tx.fetch_one(
        "SELECT state, backend FROM rollouts WHERE operation_id = $1 AND ended_at IS NOT NULL", operation_id
    )
    if row is None:
        return
    if row["state"] != RolloutState.COMPLETED.value:
        raise Conflict(f"rollout {operation_id} is {row['state']} and cannot be aborted")
    raise Conflict(
        f"rollout {operation_id} is completed and cannot be aborted; `corral backends rollback {row['backend']}` goes"
        f" back to the previous version, and `corral ops cancel {operation_id}` ends what is left for late nodes"
    )


async def is_completed(tx: Tx, operation_id: str) -> bool:
    """Whether a rollout with gates has accepted what the operation did."""
    row = await tx.fetch_one(
        "SELECT 1 AS found FROM rollouts WHERE operation_id = $1 AND gated AND state = 'completed'", operation_id
    )
    return row is not None


async def reopen_ungated(tx: Tx, operation_id: str) -> None:
    """The operation is retried; a rollout without gates ends with it."""
    await tx.execute(
        "UPDATE rollouts SET state = 'running', reason = '', ended_at = NULL, changed_at = now_ms()"
        " WHERE operation_id = $1 AND NOT gated AND ended_at IS NOT NULL",
        operation_id,
    )


async def _go_back(
    tx: Tx, operation_id: str, outcome: RolloutState, *, reason: str, actor: str, rollback_id: str
) -> bool:
    row = await tx.fetch_one(
        "UPDATE rollouts SET state = 'rolling_back', outcome = $2, reason = $3, rollback_operation_id = $4,"
        " changed_at = now_ms() WHERE operation_id = $1 AND gated AND ended_at IS NULL AND state <> 'rolling_back'"
        " RETURNING wave",
        operation_id,
        outcome.value,
        reason[:MAX_TEXT],
        rollback_id,
    )
    if row is None:
        return False
    await _note(tx, operation_id, row["wave"], actor=actor, kind=outcome.value, text=reason)
    return True


async def _begin_wave(tx: Tx, operation_id: str, wave: int) -> None:
    await tx.execute(
        "INSERT INTO rollout_waves (operation_id, wave, began_at) VALUES ($1, $2, now_ms())"
        " ON CONFLICT (operation_id, wave) DO NOTHING",
        operation_id,
        wave,
    )


async def _note(tx: Tx, operation_id: str, wave: int, *, actor: str, kind: str, text: str) -> None:
    """In the rollout's own history and in the audit log."""
    text = text[:MAX_TEXT]
    await tx.execute(
        "INSERT INTO rollout_events (operation_id, at, wave, actor, kind, text) VALUES ($1, now_ms(), $2, $3, $4, $5)",
        operation_id,
        wave,
        actor,
        kind,
        text,
    )
    detail = {"wave": wave + 1, "text": text}
    await append_event(tx, actor=actor, action=f"rollout.{kind}", subject=operation_id, detail=detail)


class RolloutStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    # Reads

    async def now_ms(self) -> int:
        async def body(tx: Tx) -> int:
            row = await tx.fetch_one("SELECT now_ms() AS now")
            assert row is not None
            return int(row["now"])

        return await self._database.read(body)

    async def read_open(self) -> list[Rollout]:
        async def body(tx: Tx) -> list[Rollout]:
            return await _read(tx, f"WHERE {_OPEN} AND gated ORDER BY rollouts.created_at")

        return await self._database.read(body)

    async def read_recent(self, *, limit: int = RECENT) -> list[Rollout]:
        """Open ones, and the last that ended; newest first."""

        async def body(tx: Tx) -> list[Rollout]:
            return await _read(
                tx,
                f"WHERE {_OPEN} OR rollouts.operation_id IN (SELECT operation_id FROM rollouts"  # noqa: S608
                " WHERE ended_at IS NOT NULL ORDER BY created_at DESC LIMIT $1) ORDER BY rollouts.created_at DESC",
                limit,
            )

        return await self._database.read(body)

    async def read_changes(self, since_ms: int) -> tuple[int, list[Rollout]]:
        """The store's time, and rollouts that changed since then."""

        async def body(tx: Tx) -> tuple[int, list[Rollout]]:
            found = await _read(
                tx,
                "WHERE rollouts.changed_at >= $1 OR (rollouts.ended_at IS NULL AND operations.changed_at >= $1)"
                " ORDER BY rollouts.created_at DESC LIMIT 100",
                since_ms,
            )
            row = await tx.fetch_one("SELECT now_ms() AS now")
            assert row is not None
            return row["now"], found

        return await self._database.read(body)

    async def read_one(self, given: str) -> Rollout:
        """By the id of its operation, or the beginning of it."""

        async def body(tx: Tx) -> Rollout:
            return (await _read(tx, "WHERE rollouts.operation_id = $1", await _complete_id(tx, given)))[0]

        return await self._database.read(body)

    async def read_events(self, operation_id: str) -> list[RolloutEvent]:
        async def body(tx: Tx) -> list[RolloutEvent]:
            rows = await tx.fetch(
                "SELECT at, wave, actor, kind, text FROM rollout_events WHERE operation_id = $1 ORDER BY id LIMIT 1000",
                operation_id,
            )
            return [
                RolloutEvent(at=row["at"], wave=row["wave"], actor=row["actor"], kind=row["kind"], text=row["text"])
                for row in rows
            ]

        return await self._database.read(body)

    async def read_held_back(self) -> list[HeldBack]:
        """Versions that running rollouts have not accepted yet, and versions that failed."""

        async def body(tx: Tx) -> list[HeldBack]:
            failed = await tx.fetch(f"{_SELECT} WHERE gated AND allowed_by = '' AND rollouts.state = 'failed'")
            found = [_rollout(row, (), ()) for row in failed]
            return find_held_back_versions([*found, *await _read(tx, f"WHERE gated AND {_OPEN}")])

        return await self._database.read(body)

    async def read_per_node(self, node_id: str, build: str) -> PerNode:
        """How replicas of the build are to be replaced on the node now."""

        async def body(tx: Tx) -> PerNode:
            row = await tx.fetch_one(
                "SELECT options FROM rollouts JOIN rollout_nodes USING (operation_id)"  # noqa: S608
                f" WHERE {_OPEN} AND rollouts.state <> 'rolling_back' AND node_id = $1 AND build = $2"
                " ORDER BY rollouts.created_at DESC LIMIT 1",
                node_id,
                build,
            )
            return _decode_options(row["options"]).per_node if row is not None else PerNode.AUTO

        return await self._database.read(body)

    # What the controller decides. Each applies only to the state that it was decided on, under the lease of the leader.

    async def begin_soak(self, rollout: Rollout, *, left_behind: Sequence[str], lease: Lease | None = None) -> bool:
        async def body(tx: Tx) -> bool:
            if not await _lock(tx, rollout, lease):
                return False
            changed = await tx.execute(
                "UPDATE rollout_waves SET soak_began_at = now_ms() WHERE operation_id = $1 AND wave = $2"
                " AND soak_began_at IS NULL",
                rollout.operation_id,
                rollout.wave,
            )
            if changed:
                text = f"wave {rollout.wave + 1} is installed; watching it for {rollout.options.soak_s:g} s"
                if left_behind:
                    text += f"; going on without {', '.join(left_behind)}, which will follow"
                await _touch(tx, rollout)
                await _note(tx, rollout.operation_id, rollout.wave, actor="rollout", kind="wave_installed", text=text)
            return bool(changed)

        return await self._database.write(body)

    async def save_verdicts(
        self, rollout: Rollout, verdicts: Sequence[GateVerdict], *, lease: Lease | None = None
    ) -> bool:
        async def body(tx: Tx) -> bool:
            if not await _lock(tx, rollout, lease):
                return False
            await tx.execute(
                "UPDATE rollout_waves SET verdicts = $3 WHERE operation_id = $1 AND wave = $2",
                rollout.operation_id,
                rollout.wave,
                _encode(tuple(verdicts)),
            )
            await _touch(tx, rollout)
            return True

        return await self._database.write(body)

    async def release(self, rollout: Rollout, wave: int, *, lease: Lease | None = None) -> bool:
        """Let the next wave begin."""

        async def body(tx: Tx) -> bool:
            if not await _lock(tx, rollout, lease):
                return False
            await tx.execute(
                "UPDATE rollouts SET wave = $2, state = 'running', promoted = false, reason = '', changed_at = now_ms()"
                " WHERE operation_id = $1",
                rollout.operation_id,
                wave,
            )
            await _end_wave(tx, rollout)
            await _begin_wave(tx, rollout.operation_id, wave)
            ready = [node.member.node_id for node in rollout.nodes if node.wave <= wave]
            await _release_intents(tx, rollout.operation_id, ready)
            count = len(rollout.nodes_of(wave))
            text = f"wave {wave + 1} of {rollout.wave_count} begins: {count} {'node' if count == 1 else 'nodes'}"
            await _note(tx, rollout.operation_id, wave, actor="rollout", kind="wave_began", text=text)
            return True

        return await self._database.write(body)

    async def stand_in(self, rollout: Rollout, node_id: NodeId, *, reason: str, lease: Lease | None = None) -> bool:
        """Move a node of a later wave into the current one, which then begins anew."""

        async def body(tx: Tx) -> bool:
            if not await _lock(tx, rollout, lease):
                return False
            moved = await tx.fetch_one(
                "UPDATE rollout_nodes SET wave = $3 WHERE operation_id = $1 AND node_id = $2 AND wave > $3"
                " RETURNING node_name",
                rollout.operation_id,
                node_id,
                rollout.wave,
            )
            if moved is None:
                return False
            await tx.execute(
                "UPDATE rollout_waves SET began_at = now_ms(), soak_began_at = NULL, verdicts = '[]'"
                " WHERE operation_id = $1 AND wave = $2",
                rollout.operation_id,
                rollout.wave,
            )
            await _release_intents(tx, rollout.operation_id, [node_id])
            await _touch(tx, rollout)
            text = f"{reason}; {moved['node_name']} stands in"
            await _note(tx, rollout.operation_id, rollout.wave, actor="rollout", kind="stand_in", text=text)
            return True

        return await self._database.write(body)

    async def await_promotion(self, rollout: Rollout, *, lease: Lease | None = None) -> bool:
        async def body(tx: Tx) -> bool:
            if not await _lock(tx, rollout, lease):
                return False
            await tx.execute(
                "UPDATE rollouts SET state = 'awaiting_promotion', changed_at = now_ms() WHERE operation_id = $1",
                rollout.operation_id,
            )
            text = "the canaries passed; waiting for someone to promote it"
            await _note(tx, rollout.operation_id, rollout.wave, actor="rollout", kind="canaries_passed", text=text)
            return True

        return await self._database.write(body)

    async def complete(self, rollout: Rollout, *, lease: Lease | None = None) -> bool:
        return await self._end(rollout, RolloutState.COMPLETED, reason="", text="all waves passed", lease=lease)

    async def end_replaced(self, rollout: Rollout, *, lease: Lease | None = None) -> bool:
        reason = describe_replaced(rollout.nodes)
        return await self._end(rollout, RolloutState.ABORTED, reason=reason, text=reason, lease=lease)

    async def end_rollback(self, rollout: Rollout, *, text: str, lease: Lease | None = None) -> bool:
        assert rollout.outcome is not None
        return await self._end(rollout, rollout.outcome, reason=rollout.reason, text=text, lease=lease)

    async def _end(self, rollout: Rollout, state: RolloutState, *, reason: str, text: str, lease: Lease | None) -> bool:
        async def body(tx: Tx) -> bool:
            if not await _lock(tx, rollout, lease):
                return False
            await tx.execute(
                "UPDATE rollouts SET state = $2, outcome = NULL, reason = $3, builds = $4, ended_at = now_ms(),"
                " changed_at = now_ms() WHERE operation_id = $1",
                rollout.operation_id,
                state.value,
                reason,
                _encode(rollout.builds),  # with the digests that nodes have reported: their intents are pruned one day
            )
            await _end_wave(tx, rollout)
            kind = "ended" if rollout.outcome is not None else state.value
            await _note(tx, rollout.operation_id, rollout.wave, actor="rollout", kind=kind, text=text)
            await finish_operations(tx, [rollout.operation_id])
            return True

        return await self._database.write(body)

    # What people decide

    async def pause(self, given: str, *, actor: str, reason: str) -> str:
        return await self._steer(
            given,
            ("running", "awaiting_promotion"),
            "state = 'paused', reason = $2",
            actor=actor,
            kind="paused",
            text=reason or f"paused by {actor}",
        )

    async def resume(self, given: str, *, actor: str) -> str:
        return await self._steer(
            given, ("paused",), "state = 'running', reason = ''", actor=actor, kind="resumed", text="resumed"
        )

    async def promote(self, given: str, *, actor: str) -> str:
        """Go on with the next wave now, without more soaking."""
        return await self._steer(
            given,
            ("running", "awaiting_promotion", "paused"),
            "state = 'running', promoted = true, reason = ''",
            actor=actor,
            kind="promoted",
            text="promoted: the next wave begins now",
        )

    async def allow(self, given: str, *, actor: str) -> str:
        """Offer the version of a failed rollout again."""
        return await self._steer(
            given,
            ("failed",),
            "allowed_by = $2",
            actor=actor,
            kind="allowed",
            text=actor,
            note="the version is offered again",
        )

    async def _steer(
        self, given: str, states: Sequence[str], change: str, *, actor: str, kind: str, text: str, note: str = ""
    ) -> str:
        async def body(tx: Tx) -> str:
            operation_id = await _complete_id(tx, given)
            await lock_operations(tx, [operation_id])
            row = await tx.fetch_one("SELECT state, wave, gated FROM rollouts WHERE operation_id = $1", operation_id)
            assert row is not None
            if not row["gated"]:
                raise Conflict(
                    f"rollout {operation_id} changes all nodes at once and has no gates; `corral ops cancel"
                    f" {operation_id}` stops it"
                )
            if row["state"] not in states:
                raise Conflict(f"rollout {operation_id} is {row['state'].replace('_', ' ')} and cannot be {kind}")
            args = (text,) if "$2" in change else ()
            await tx.execute(
                f"UPDATE rollouts SET {change}, changed_at = now_ms() WHERE operation_id = $1",  # noqa: S608
                operation_id,
                *args,
            )
            await _note(tx, operation_id, row["wave"], actor=actor, kind=kind, text=note or text)
            return operation_id

        return await self._database.write(body)


async def _complete_id(tx: Tx, given: str) -> str:
    rows = await tx.fetch(
        "SELECT operation_id FROM rollouts WHERE operation_id = $1 OR substr(operation_id, 1, $2) = $1 LIMIT 3",
        given,
        len(given),
    )
    ids = [row["operation_id"] for row in rows]
    if given in ids:
        return given
    if len(ids) > 1 and given:
        raise Conflict(f"several rollouts begin with {given!r}; give more of the id")
    if not ids or not given:
        raise NotFound(f"there is no rollout {given!r}; list rollouts with `corral rollouts list`")
    return str(ids[0])


async def _lock(tx: Tx, rollout: Rollout, lease: Lease | None) -> bool:
    """Whether the rollout is still as it was read: the same state and wave. Raises Fenced if another frontend leads."""
    await check_held(tx, lease)
    await lock_operations(tx, [rollout.operation_id])
    row = await tx.fetch_one(
        "SELECT operation_id FROM rollouts WHERE operation_id = $1 AND state = $2 AND wave = $3 AND ended_at IS NULL",
        rollout.operation_id,
        rollout.state.value,
        rollout.wave,
    )
    return row is not None


async def _touch(tx: Tx, rollout: Rollout) -> None:
    await tx.execute("UPDATE rollouts SET changed_at = now_ms() WHERE operation_id = $1", rollout.operation_id)


async def _end_wave(tx: Tx, rollout: Rollout) -> None:
    await tx.execute(
        "UPDATE rollout_waves SET ended_at = now_ms() WHERE operation_id = $1 AND wave = $2 AND ended_at IS NULL",
        rollout.operation_id,
        rollout.wave,
    )


async def _release_intents(tx: Tx, operation_id: str, nodes: Iterable[NodeId]) -> None:
    ids = in_list(nodes)
    rows = await tx.fetch(
        "SELECT id, node_id FROM intents WHERE operation_id = $1 AND held"  # noqa: S608
        f" AND node_id IN ({places(len(ids), first=2)})",
        operation_id,
        *ids,
    )
    await lock_intents(tx, [row["id"] for row in rows])
    await tx.execute_many(
        "UPDATE intents SET held = false, due_at = now_ms(), changed_at = now_ms() WHERE id = $1",
        [(row["id"],) for row in rows],
    )
    await tx.execute_many(
        "UPDATE operation_nodes SET error = '', changed_at = now_ms() WHERE operation_id = $1 AND node_id = $2"
        " AND status = 'queued'",
        [(operation_id, row["node_id"]) for row in rows],
    )
    await touch_operations(tx, [operation_id])


async def _read(tx: Tx, where: str, *args: object) -> list[Rollout]:
    rows = await tx.fetch(f"{_SELECT} {where}", *args)
    ids = in_list(row["operation_id"] for row in rows)
    if not ids:
        return []
    among = f"operation_id IN ({places(len(ids))})"
    nodes: dict[str, list[RolloutNode]] = {}
    for row in await tx.fetch(
        "SELECT rollout_nodes.*, rollouts.state AS rollout_state, intents.backend AS intent_backend,"  # noqa: S608
        f" {_of_intent('intents', 'own')}, {_of_intent('latest', 'newer')}, latest.verb AS newer_verb,"
        " latest.operation_id AS newer_operation, newer.cause AS newer_cause, back.state AS rollback_state,"
        " back.last_error AS rollback_error,"
        f" CASE WHEN {_NO_DIGEST} THEN intents.spec END AS own_spec,"
        f" CASE WHEN {_NO_DIGEST} THEN latest.spec END AS newer_spec, shown.method AS own_method,"
        " newer_shown.method AS newer_method"
        " FROM rollout_nodes JOIN rollouts ON rollouts.operation_id = rollout_nodes.operation_id"
        " LEFT JOIN intents ON intents.operation_id = rollout_nodes.operation_id"
        " AND intents.node_id = rollout_nodes.node_id"
        " LEFT JOIN intents back ON back.operation_id = rollouts.rollback_operation_id"
        " AND back.node_id = rollout_nodes.node_id"
        " LEFT JOIN intents latest ON latest.newest AND latest.node_id = intents.node_id"
        " AND latest.backend = intents.backend AND latest.generation > intents.generation"
        " AND (rollouts.rollback_operation_id IS NULL OR latest.operation_id <> rollouts.rollback_operation_id)"
        " LEFT JOIN operations newer ON newer.id = latest.operation_id"
        " LEFT JOIN operation_nodes shown ON shown.operation_id = rollout_nodes.operation_id"
        " AND shown.node_id = rollout_nodes.node_id"
        " LEFT JOIN operation_nodes newer_shown ON newer_shown.operation_id = latest.operation_id"
        " AND newer_shown.node_id = rollout_nodes.node_id"
        f" WHERE rollout_nodes.{among} ORDER BY rollout_nodes.wave, rollout_nodes.node_name",
        *ids,
    ):
        nodes.setdefault(row["operation_id"], []).append(_node(row))
    waves: dict[str, list[WaveRecord]] = {}
    for row in await tx.fetch(f"SELECT * FROM rollout_waves WHERE {among} ORDER BY wave", *ids):  # noqa: S608
        waves.setdefault(row["operation_id"], []).append(_wave(row))
    return [_rollout(row, waves.get(row["operation_id"], ()), nodes.get(row["operation_id"], ())) for row in rows]


_INTENT_COLUMNS = ("state", "attempts", "last_error", "fence", "version_failed", "proof", "digest")
_NO_DIGEST = "newer.cause = 'policy' AND (intents.digest = '' OR latest.digest = '')"
"""Versions are compared by their specs then."""


def _of_intent(table: str, prefix: str) -> str:
    return ", ".join(f"{table}.{column} AS {prefix}_{column}" for column in _INTENT_COLUMNS)


def _node(row: Row) -> RolloutNode:
    continued = _is_continued(row)
    source = "newer" if continued else "own"
    state = row[f"{source}_state"]
    is_replaced = (
        row["newer_operation"] is not None
        and not continued
        and RolloutState(row["rollout_state"]) is not RolloutState.COMPLETED
    )
    return RolloutNode(
        member=RolloutMember(
            node_id=NodeId(row["node_id"]),
            node_name=row["node_name"],
            node_class=row["node_class"],
            build=row["build"],
            previous_version=row["previous_version"],
            previous_digest=row["previous_digest"],
            serves=bool(row["serves"]),
            method=row["method"],
            inherited=bool(row["inherited"]),
        ),
        wave=row["wave"],
        intent=IntentState.SUPERSEDED if is_replaced else IntentState(state) if state is not None else None,
        backend=row["intent_backend"] or "",
        replaced_by=row["newer_operation"] if is_replaced else "",
        attempts=row[f"{source}_attempts"] or 0,
        error=row[f"{source}_last_error"] or "",
        began=bool(row["own_fence"]) or (continued and bool(row["newer_fence"])),
        version_failed=bool(row[f"{source}_version_failed"]),
        digest=row[f"{source}_digest"] or "",
        proof=decode_proof(row[f"{source}_proof"]),
        rollback=IntentState(row["rollback_state"]) if row["rollback_state"] is not None else None,
        rollback_error=row["rollback_error"] or "",
        used_method=(row["newer_method"] if continued else "") or row["own_method"] or "",
    )


def _is_continued(row: Row) -> bool:
    """Whether a policy installs the rollout's own version on the node again."""
    if row["newer_cause"] != "policy" or row["newer_verb"] == Verb.DELETE.value:
        return False
    if row["own_digest"] and row["newer_digest"]:
        return bool(row["own_digest"] == row["newer_digest"])
    own, newer = decode_spec(row["own_spec"]).build, decode_spec(row["newer_spec"]).build
    return bool(own.version) and (own.name, own.version) == (newer.name, newer.version)


def _wave(row: Row) -> WaveRecord:
    return WaveRecord(
        wave=row["wave"],
        began_at=row["began_at"],
        soak_began_at=row["soak_began_at"],
        ended_at=row["ended_at"],
        verdicts=_decode_verdicts(row["verdicts"]),
    )


def _rollout(row: Row, waves: Sequence[WaveRecord], nodes: Sequence[RolloutNode]) -> Rollout:
    return Rollout(
        operation_id=row["operation_id"],
        backend=row["backend"],
        verb=row["verb"],
        actor=row["actor"],
        strategy=Strategy(row["strategy"]),
        state=RolloutState(row["state"]),
        outcome=RolloutState(row["outcome"]) if row["outcome"] else None,
        wave=row["wave"],
        wave_count=row["wave_count"],
        options=_decode_options(row["options"]),
        builds=complete_builds(_decode_builds(row["builds"]), nodes),
        target=decode_target(row["target"]),
        reason=row["reason"],
        waves=tuple(waves),
        nodes=tuple(nodes),
        rollback_operation_id=row["rollback_operation_id"],
        promoted=bool(row["promoted"]),
        allowed_by=row["allowed_by"],
        created_at=row["created_at"],
        changed_at=row["changed_at"],
        ended_at=row["ended_at"],
    )
