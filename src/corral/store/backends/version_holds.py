"""Version holds: after a rollback of the fleet, later nodes get that version too, until a newer one is requested."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from corral.core.backends.intents import BackendSpec, Intent, Verb
from corral.core.backends.operations import Admission, NewIntent, Operation
from corral.core.backends.version_holds import VersionHold
from corral.store.backends.intent_rows import encode_spec
from corral.store.backends.policies import encode_selector
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places
from corral.system import Ids

_decode_selector = msgspec.json.Decoder(dict[str, str]).decode
_decode_spec = msgspec.json.Decoder(BackendSpec).decode


@dataclass(frozen=True, slots=True)
class _Scope:
    """Which holds an operation ends: all of its backends if it is for all nodes, else those with the same selector."""

    backends: Sequence[str]
    selector: str
    before: int
    """The operation's generation: later holds stay."""
    variants: Sequence[str] | None = None


async def change_holds(
    tx: Tx, admission: Admission, intents: Iterable[NewIntent], generation: int, *, ids: Ids
) -> None:
    """For an operation that a person requested for all nodes or a selector: end older holds, and add its own."""
    await _end(
        tx, _scope_of(admission, intents, {hold.build.name for hold in admission.holds}, generation), admission.id
    )
    if admission.verb is Verb.ROLLBACK:
        await tx.execute_many(
            "INSERT INTO version_holds (id, backend, selector, variant, spec, generation, operation_id, created_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, now_ms())",
            [
                (
                    ids.uuid(),
                    hold.reference,
                    encode_selector(admission.target.selector),
                    hold.build.name,
                    encode_spec(hold),
                    generation,
                    admission.id,
                )
                for hold in admission.holds
            ],
        )


def _scope_of(
    operation: Admission | Operation, intents: Iterable[NewIntent | Intent], held: Iterable[str], generation: int
) -> _Scope:
    intents = list(intents)
    variants = {
        Verb.INSTALL: None,
        Verb.DELETE: None,
        Verb.UPGRADE: in_list({intent.spec.build.name for intent in intents}),
        Verb.ROLLBACK: in_list(held),
    }
    return _Scope(
        backends=in_list({operation.backend, *(intent.backend for intent in intents)}),
        selector=encode_selector(operation.target.selector),
        before=generation,
        variants=variants[operation.verb],
    )


async def _end(tx: Tx, scope: _Scope, operation_id: str) -> None:
    if scope.variants == []:
        return
    first = 5 + len(scope.backends)
    which = "" if scope.variants is None else f" AND variant IN ({places(len(scope.variants), first=first)})"
    await tx.execute(
        "UPDATE version_holds SET ended_by = $1 WHERE ended_by IS NULL AND ($2 = $3 OR selector = $2)"  # noqa: S608
        f" AND generation < $4 AND backend IN ({places(len(scope.backends), first=5)}){which}",
        operation_id,
        scope.selector,
        encode_selector({}),
        scope.before,
        *scope.backends,
        *(scope.variants or ()),
    )


async def withdraw_holds(tx: Tx, operation_id: str) -> None:
    """Undo the changes of a cancelled operation: the holds it ended are in force again, its own are not."""
    await tx.execute(
        "UPDATE version_holds SET ended_by = CASE WHEN operation_id = $1 THEN $1 ELSE NULL END"
        " WHERE (operation_id = $1 AND ended_by IS NULL) OR (ended_by = $1 AND operation_id <> $1)",
        operation_id,
    )


async def restore_holds(tx: Tx, operation: Operation, intents: Sequence[Intent]) -> None:
    """Redo the changes of a cancelled operation that is retried."""
    if operation.cause != "request" or not operation.target.is_lasting:
        return
    own = await tx.fetch("SELECT variant FROM version_holds WHERE operation_id = $1", operation.id)
    scope = _scope_of(operation, intents, {row["variant"] for row in own}, operation.generation)
    await _end(tx, scope, operation.id)
    await tx.execute("UPDATE version_holds SET ended_by = NULL WHERE operation_id = $1 AND ended_by = $1", operation.id)


def _hold(row: Row) -> VersionHold:
    return VersionHold(
        backend=row["backend"],
        selector=_decode_selector(row["selector"]),
        spec=_decode_spec(row["spec"]),
        generation=row["generation"],
        operation_id=row["operation_id"],
    )


class VersionHoldStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[VersionHold]:
        """Holds in force."""

        async def body(tx: Tx) -> list[VersionHold]:
            rows = await tx.fetch("SELECT * FROM version_holds WHERE ended_by IS NULL ORDER BY generation, variant")
            return [_hold(row) for row in rows]

        return await self._database.read(body)
