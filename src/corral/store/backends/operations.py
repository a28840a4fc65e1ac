"""Operations as people see and control them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from corral.core.backends.intents import DONE_BEFORE_CANCEL, Intent, IntentState, Verb
from corral.core.backends.operations import NewIntent, NodeProgress, NodeProgressStatus, Operation
from corral.core.backends.rollouts import PerNode, Rollout
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Target
from corral.store.access.audit_events import append_event, summarize_nodes
from corral.store.backends.create_operation import find_conflicts
from corral.store.backends.intent_rows import (
    SELECT_INTENT,
    cancel_intents,
    finish_operations,
    lock_operations,
    mark_ended,
    read_intent_row,
    touch_operations,
)
from corral.store.backends.operation_rows import (
    SELECT_OPERATION,
    encode_target,
    encode_transfer,
    read_operation_row,
    read_progress_rows,
    read_requester_rows,
)
from corral.store.backends.policies import restore_policy, withdraw_policy
from corral.store.backends.rollouts import (
    abort_rollout,
    check_abort,
    check_retry,
    fail_open_rollout,
    is_completed,
    reopen_ungated,
)
from corral.store.backends.version_pins import restore_pins, withdraw_pins
from corral.store.engine.database import Database, Tx
from corral.store.engine.leases import Lease
from corral.store.engine.sql import places
from corral.system import Ids

HISTORY_LIMIT = 50
MAX_NAMES = 3


@dataclass(frozen=True, slots=True)
class Places:
    names: tuple[str, ...] = ()
    """The first few names."""
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCancelled:
    operation: Operation
    running: tuple[tuple[NodeId, str], ...]
    """Nodes whose workers may be running it and must be told, with the backend's name."""
    was_over: bool = False
    """Whether it was already finished, so that nothing was done."""


def _unknown(operation_id: str) -> NotFound:
    return NotFound(f"there is no operation {operation_id!r}; list operations with `corral ops list`")


def _detail(operation: Operation, intents: Iterable[Intent]) -> dict[str, Any]:
    """For the audit log: what was cancelled or retried, and on which nodes."""
    chosen = {intent.node_id for intent in intents}
    ids = [node.node_id for node in operation.nodes if node.node_id in chosen]
    return {"verb": operation.verb.value, "backend": operation.backend, **summarize_nodes(ids)}


class OperationStore:
    def __init__(self, database: Database, ids: Ids) -> None:
        self._database, self._ids = database, ids

    async def read_one(self, operation_id: str) -> Operation:
        async def body(tx: Tx) -> Operation:
            return await _read_one(tx, operation_id)

        return await self._database.read(body)

    async def read_open(self) -> list[Operation]:
        """Running operations, and failed ones that nobody has dismissed."""

        async def body(tx: Tx) -> list[Operation]:
            rows = await tx.fetch(
                f"{SELECT_OPERATION} WHERE finished_at IS NULL"  # noqa: S608
                " UNION ALL"
                f" SELECT * FROM ({SELECT_OPERATION} WHERE finished_at IS NOT NULL AND state = 'failed'"
                " AND dismissed_at IS NULL AND cleared_at IS NULL ORDER BY created_at DESC LIMIT 100) AS failed"
            )
            progress = await read_progress_rows(tx, [row["id"] for row in rows])
            return [read_operation_row(row, progress.get(row["id"], ())) for row in rows]

        return await self._database.read(body)

    async def note_install(
        self, operation_id: str, *, backend: str, node_id: str, node_name: str, variant: str, digest: str, cause: str
    ) -> None:
        """Add an install that a load required to the history. It is already done. Repeating it changes nothing."""

        async def body(tx: Tx) -> None:
            if await tx.fetch_one("SELECT id FROM operations WHERE id = $1", operation_id) is not None:
                return
            await tx.execute(
                "INSERT INTO operations (id, verb, backend, reference, node_id, target, generation, actor, cause,"
                " request_hash, state, cancel_requested, error, created_at, changed_at, finished_at)"
                " VALUES ($1, $2, $3, $3, $4, $5, 0, 'corral', $6, '', 'completed', false, '', now_ms(), now_ms(),"
                " now_ms())",
                operation_id,
                Verb.INSTALL.value,
                backend,
                node_id,
                encode_target(Target(nodes=(node_id,))),
                cause,
            )
            await tx.execute(
                "INSERT INTO operation_nodes (operation_id, node_id, node_name, status, error, variant, digest,"
                " transfer, sequence, attempts, changed_at)"
                " VALUES ($1, $2, $3, 'success', '', $4, $5, '', 0, 0, now_ms())",
                operation_id,
                node_id,
                node_name,
                variant,
                digest,
            )

        await self._database.write(body)

    async def read_history(self, *, limit: int = HISTORY_LIMIT) -> list[Operation]:
        """Finished operations, newest first, without their nodes."""

        async def body(tx: Tx) -> list[Operation]:
            rows = await tx.fetch(
                f"{SELECT_OPERATION} WHERE finished_at IS NOT NULL AND cleared_at IS NULL"
                " ORDER BY finished_at DESC LIMIT $1",
                limit,
            )
            return [read_operation_row(row) for row in rows]

        return await self._database.read(body)

    async def read_places(self, ids: Iterable[str]) -> dict[str, Places]:
        """By operation: how many nodes it is for, and the names of the first few."""
        ordered = sorted(set(ids))

        async def body(tx: Tx) -> dict[str, Places]:
            if not ordered:
                return {}
            rows = await tx.fetch(
                "SELECT operation_id, node_name, total FROM (SELECT operation_id, node_name,"  # noqa: S608
                " COUNT(*) OVER (PARTITION BY operation_id) AS total,"
                " ROW_NUMBER() OVER (PARTITION BY operation_id ORDER BY node_name) AS place FROM operation_nodes"
                f" WHERE operation_id IN ({places(len(ordered))}) AND status <> 'not_applicable') AS ranked"
                f" WHERE place <= {MAX_NAMES} ORDER BY operation_id, place",
                *ordered,
            )
            found: dict[str, Places] = {}
            for row in rows:
                before = found.get(row["operation_id"], Places())
                found[row["operation_id"]] = Places((*before.names, row["node_name"]), row["total"])
            return found

        return await self._database.read(body)

    async def read_requesters(self, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
        """By operation: who requested it, and when."""
        chosen = set(ids)

        async def body(tx: Tx) -> dict[str, tuple[str, int]]:
            return await read_requester_rows(tx, chosen)

        return await self._database.read(body)

    async def read_changes(self, since_ms: int) -> tuple[int, list[Operation]]:
        """The store's time, and operations changed since then, with their nodes."""

        async def body(tx: Tx) -> tuple[int, list[Operation]]:
            rows = await tx.fetch(
                f"{SELECT_OPERATION} WHERE changed_at >= $1 ORDER BY changed_at DESC LIMIT 500", since_ms
            )
            progress = await read_progress_rows(tx, [row["id"] for row in rows])
            now = await tx.fetch_one("SELECT now_ms() AS now")
            assert now is not None
            return now["now"], [read_operation_row(row, progress.get(row["id"], ())) for row in rows]

        return await self._database.read(body)

    async def clear_history(self, *, actor: str) -> int:
        """Hide finished operations; the audit log keeps them. Returns how many."""

        async def body(tx: Tx) -> int:
            count = await tx.execute(
                "UPDATE operations SET cleared_at = now_ms(), changed_at = now_ms()"
                " WHERE finished_at IS NOT NULL AND cleared_at IS NULL"
            )
            await append_event(
                tx, actor=actor, action="operations.cleared", subject="history", detail={"operations": count}
            )
            return count

        return await self._database.write(body)

    async def dismiss(self, operation_id: str, *, actor: str) -> Operation:
        async def body(tx: Tx) -> Operation:
            operation = await _read_one(tx, operation_id)
            if operation.is_retrying:
                raise Conflict(
                    f"operation {operation_id} has failed nodes, which are retried automatically;"
                    " cancel it to stop the retries"
                )
            if operation.finished_at is None:
                raise Conflict(f"operation {operation_id} is still running; cancel it instead")
            await tx.execute(
                "UPDATE operations SET dismissed_at = now_ms(), changed_at = now_ms() WHERE id = $1", operation_id
            )
            detail = {"verb": operation.verb.value, "backend": operation.backend}
            await append_event(tx, actor=actor, action="operation.dismissed", subject=operation_id, detail=detail)
            return operation

        return await self._database.write(body)

    async def cancel(self, operation_id: str, *, actor: str) -> OperationCancelled:
        """Pending intents are cancelled immediately; the frontends that hold the others cancel those. Where an upgrade,
        rollback or delete is already done, it is taken back: what was desired before is desired again.

        The policy and the pin of this operation end too, and those it replaced hold again. Where a rollout with gates
        has completed, only nodes that are late are cancelled: what it accepted stays."""

        return await self._cancel(operation_id, actor=actor, is_abort=False)

    async def abort(self, operation_id: str, *, actor: str) -> OperationCancelled:
        """As a cancel, of an operation whose rollout has not ended."""
        return await self._cancel(operation_id, actor=actor, is_abort=True)

    async def _cancel(self, operation_id: str, *, actor: str, is_abort: bool) -> OperationCancelled:
        rollback_id = self._ids.uuid()

        async def body(tx: Tx) -> OperationCancelled:
            await lock_operations(tx, [operation_id])
            if is_abort:
                await check_abort(tx, operation_id)
            why = f"cancelled by {actor}"
            await abort_rollout(tx, operation_id, reason=why, actor=actor, rollback_id=rollback_id)
            return await cancel_operation(tx, operation_id, why=why, actor=actor)

        return await self._database.write(body)

    async def retry(self, operation_id: str, *, node_id: str | None, actor: str) -> Operation:
        """Make failed intents, of one node or of all, due now, with all their attempts; superseded ones are left out. A
        policy that ended with a cancellation holds again, unless a newer one exists."""

        async def body(tx: Tx) -> Operation:
            await lock_operations(tx, [operation_id])
            operation = await _read_one(tx, operation_id)
            await check_retry(tx, operation_id)
            rows = await tx.fetch(f"{SELECT_INTENT} WHERE operation_id = $1 ORDER BY id FOR UPDATE", operation_id)
            intents = [read_intent_row(row) for row in rows]
            chosen = _retryable(operation, intents, node_id)
            chosen = await _without_excluded(tx, operation, chosen)
            await tx.execute_many(
                "UPDATE intents SET state = 'pending', live = true, attempts = 0, due_at = now_ms(), last_error = '',"
                " cancel_requested = false, stop_requested = false, final = false, version_failed = false, proof = '',"
                " finished_at = NULL,"
                " changed_at = now_ms()"
                " WHERE id = $1",
                [(intent.id,) for intent in chosen],
            )
            await tx.execute_many(
                "UPDATE operation_nodes SET status = 'queued', error = '', attempts = 0, next_attempt_at = NULL,"
                " transfer = '', sequence = 0,"
                " changed_at = now_ms() WHERE operation_id = $1 AND node_id = $2",
                [(operation_id, intent.node_id) for intent in chosen],
            )
            await tx.execute(
                "UPDATE operations SET state = 'running', error = '', cancel_requested = false, finished_at = NULL,"
                " dismissed_at = NULL, changed_at = now_ms() WHERE id = $1",
                operation_id,
            )
            await reopen_ungated(tx, operation_id)
            await restore_policy(tx, operation_id)
            await restore_pins(tx, operation, intents)
            detail = _detail(operation, chosen)
            await append_event(tx, actor=actor, action="operation.retried", subject=operation_id, detail=detail)
            return await _read_one(tx, operation_id)

        return await self._database.write(body)

    async def fail_rollout(self, rollout: Rollout, reason: str, *, lease: Lease | None = None) -> bool:
        """A gate of the rollout failed: its operation is cancelled, and the nodes it has reached go back."""
        rollback_id = self._ids.uuid()

        async def body(tx: Tx) -> bool:
            if not await fail_open_rollout(tx, rollout, reason=reason, rollback_id=rollback_id, lease=lease):
                return False
            why = f"cancelled by rollout: {reason}"
            await cancel_operation(tx, rollout.operation_id, why=why, actor="rollout")
            return True

        return await self._database.write(body)

    async def save_progress(self, progress: Iterable[tuple[str, NodeProgress]]) -> None:
        """Store the progress of running intents; never over newer progress or a result."""
        rows: Sequence[tuple[object, ...]] = [
            (
                operation_id,
                node.node_id,
                node.sequence,
                encode_transfer(node.transfer),
            )
            for operation_id, node in progress
        ]
        if not rows:
            return

        async def body(tx: Tx) -> None:
            await lock_operations(tx, [str(row[0]) for row in rows])
            await tx.execute_many(
                "UPDATE operation_nodes SET sequence = $3, transfer = $4, changed_at = now_ms()"
                " WHERE operation_id = $1 AND node_id = $2 AND sequence < $3"
                " AND status IN ('downloading', 'running_on_worker')",
                rows,
            )
            await touch_operations(tx, [str(row[0]) for row in rows])

        await self._database.write(body)

    async def note_method(self, operation_id: str, node_id: NodeId, method: PerNode) -> None:
        """How its replicas are being replaced. A node where one was stopped first stays one of those."""

        async def body(tx: Tx) -> None:
            await lock_operations(tx, [operation_id])
            changed = await tx.execute(
                "UPDATE operation_nodes SET method = $3, changed_at = now_ms() WHERE operation_id = $1"
                " AND node_id = $2 AND method NOT IN ($3, 'stop-first')",
                operation_id,
                node_id,
                method.value,
            )
            if changed:
                await touch_operations(tx, [operation_id])

        await self._database.write(body)


async def cancel_operation(tx: Tx, operation_id: str, *, why: str, actor: str) -> OperationCancelled:
    """Within a transaction that holds the operation's lock."""
    operation = await _read_one(tx, operation_id)
    if operation.finished_at is not None:
        return OperationCancelled(operation=operation, running=(), was_over=True)
    intents = await cancel_intents(tx, operation_id, why=why)
    begun = [intent for intent in intents if intent.state is not IntentState.PENDING]
    await tx.execute("UPDATE operations SET cancel_requested = true, changed_at = now_ms() WHERE id = $1", operation_id)
    if not await is_completed(tx, operation_id):
        await _take_back(tx, operation)
        await withdraw_policy(tx, operation_id, because=why)
        await withdraw_pins(tx, operation_id)
    detail = _detail(operation, intents)
    await append_event(tx, actor=actor, action="operation.cancelled", subject=operation_id, detail=detail)
    await finish_operations(tx, [operation_id])
    return OperationCancelled(
        operation=await _read_one(tx, operation_id),
        running=tuple((intent.node_id, intent.backend) for intent in begun),
    )


async def _take_back(tx: Tx, operation: Operation) -> None:
    """End the intents that are already done, so that those before them hold again. Of an install, those that replaced
    another version."""
    if operation.cause != "request":
        return
    among = "" if operation.verb.is_undone_by_cancel else " AND verb = 'upgrade'"
    done = await tx.fetch(
        "UPDATE intents SET state = 'cancelled', last_error = $2, finished_at = now_ms(), changed_at = now_ms()"  # noqa: S608
        f" WHERE operation_id = $1 AND newest AND state = 'succeeded'{among} RETURNING node_id",
        operation.id,
        DONE_BEFORE_CANCEL,
    )
    ended = [(operation.id, row["node_id"]) for row in done]
    await mark_ended(tx, ended, status=NodeProgressStatus.CANCELLED, error=DONE_BEFORE_CANCEL)


async def _read_one(tx: Tx, operation_id: str) -> Operation:
    row = await tx.fetch_one(f"{SELECT_OPERATION} WHERE id = $1", operation_id)
    if row is None:
        raise _unknown(operation_id)
    return read_operation_row(row, (await read_progress_rows(tx, [operation_id])).get(operation_id, ()))


def _retryable(operation: Operation, intents: Sequence[Intent], node_id: str | None) -> list[Intent]:
    chosen = [intent for intent in intents if node_id is None or intent.node_id == node_id]
    if node_id is not None and not chosen:
        raise NotFound(f"operation {operation.id} does not include node {node_id}")
    failed = [
        intent
        for intent in chosen
        if intent.state in (IntentState.DEAD_LETTERED, IntentState.CANCELLED)
        or (intent.state is IntentState.PENDING and intent.attempts > 0)
    ]
    if not failed:
        raise InvalidInput(f"operation {operation.id} has no failed nodes, so there is nothing to retry")
    newest = [intent for intent in failed if intent.newest]
    if not newest:
        raise _superseded(operation, {intent.node_id for intent in failed})
    return newest


async def _without_excluded(tx: Tx, operation: Operation, chosen: Sequence[Intent]) -> list[Intent]:
    """Leave out intents that conflict with a newer one for another name, such as a delete of the backend's family."""
    new = {
        NewIntent(node_id=intent.node_id, node_name="", backend=intent.backend, spec=intent.spec): intent
        for intent in chosen
    }
    conflicts = await find_conflicts(tx, operation.verb, list(new), "newest")
    kept = [
        intent
        for one, intent in new.items()
        if all(row["generation"] < intent.generation for row in conflicts.get(one, ()))
    ]
    if not kept:
        raise _superseded(operation, {intent.node_id for intent in chosen})
    return kept


def _superseded(operation: Operation, nodes: Collection[NodeId]) -> Conflict:
    names = ", ".join(node.node_name for node in operation.nodes if node.node_id in nodes)
    return Conflict(
        f"a newer operation supersedes operation {operation.id} on {names}; start a new operation instead of a retry"
    )
