"""Version pins in force, and the changes that operations make to them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from corral.core.backends.intents import BackendSpec, Intent, Verb
from corral.core.backends.operations import Admission, NewIntent, Operation
from corral.core.backends.version_pins import VersionPin, merge_specs
from corral.core.nodes.targets import Target
from corral.store.access.audit_events import append_event
from corral.store.backends.intent_rows import NO_OPEN_ROLLOUT
from corral.store.backends.policies import encode_selector
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places
from corral.system import Ids

_decode_selector = msgspec.json.Decoder(dict[str, str]).decode
_decode_nodes = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_specs = msgspec.json.Decoder(tuple[BackendSpec, ...]).decode


def _encode_specs(specs: Iterable[BackendSpec]) -> str:
    return msgspec.json.encode(tuple(specs)).decode()


@dataclass(frozen=True, slots=True)
class _Scope:
    """Which older pins an operation ends: all of its backends if it is for all nodes, those with the same selector, or
    those of the same nodes."""

    backends: Sequence[str]
    target: Target
    before: int
    """The operation's generation: later pins stay."""


async def change_pins(tx: Tx, admission: Admission, intents: Iterable[NewIntent], generation: int, *, ids: Ids) -> None:
    """For an operation that a person requested: end older pins of its target, and add its own."""
    pin = admission.pin
    if pin is None and not _ends_pins(admission):
        return
    await _end(tx, _scope_of(admission, intents, generation), admission.id)
    if pin is None:
        return
    await tx.execute(
        "INSERT INTO version_pins (id, backend, selector, nodes, follows, version, specs, reason, generation,"
        " operation_id, created_by, created_at, changed_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, now_ms(), now_ms())",
        ids.uuid(),
        admission.backend,
        encode_selector(admission.target.selector),
        _encode_nodes(admission.target),
        pin.follows,
        pin.version,
        _encode_specs(pin.specs),
        pin.reason,
        generation,
        admission.id,
        admission.actor,
    )


def _ends_pins(operation: Admission | Operation) -> bool:
    """A backend that is deleted from all nodes, or from those that a selector matches, has no version there."""
    return operation.verb is Verb.DELETE and operation.target.is_lasting


def _encode_nodes(target: Target) -> str:
    return msgspec.json.encode(sorted(target.nodes)).decode()


def _scope_of(operation: Admission | Operation, intents: Iterable[NewIntent | Intent], generation: int) -> _Scope:
    backends = in_list({operation.backend, *(intent.backend for intent in intents)})
    return _Scope(backends=backends, target=operation.target, before=generation)


def _in_scope(scope: _Scope, *, first: int) -> tuple[str, tuple[object, ...]]:
    """A condition on pins, whose parameters begin with this number."""
    everywhere = not scope.target.nodes and not scope.target.selector
    same = "" if everywhere else f" AND version_pins.selector = ${first} AND version_pins.nodes = ${first + 1}"
    given = () if everywhere else (encode_selector(scope.target.selector), _encode_nodes(scope.target))
    listed = places(len(scope.backends), first=first + len(given))
    return f"{same} AND version_pins.backend IN ({listed})", (*given, *scope.backends)


async def _end(tx: Tx, scope: _Scope, operation_id: str) -> None:
    same, given = _in_scope(scope, first=3)
    await tx.execute(
        "UPDATE version_pins SET ended_by = $1, changed_at = now_ms()"  # noqa: S608
        f" WHERE ended_by IS NULL AND generation < $2{same}",
        operation_id,
        scope.before,
        *given,
    )


async def released_operations(tx: Tx, admission: Admission, generation: int) -> list[str]:
    """Of an operation that lets a backend follow its galleries: those that still bring a version to nodes whose pin it
    ends. A rollout with waves goes on until it ends or is aborted."""
    if admission.verb is not Verb.FOLLOW:
        return []
    scope = _scope_of(admission, (), generation)
    same, given = _in_scope(scope, first=2)
    rows = await tx.fetch(
        "SELECT operations.id FROM version_pins JOIN operations ON operations.id = version_pins.operation_id"  # noqa: S608
        f" WHERE version_pins.ended_by IS NULL AND version_pins.generation < $1{same}"
        " AND operations.verb = 'pin' AND operations.finished_at IS NULL AND NOT operations.cancel_requested"
        f" AND {NO_OPEN_ROLLOUT} ORDER BY operations.id",
        scope.before,
        *given,
    )
    return [row["id"] for row in rows]


async def withdraw_pins(tx: Tx, operation_id: str) -> None:
    """Undo the changes of a cancelled operation: the pins it ended are in force again, its own are not."""
    await tx.execute(
        "UPDATE version_pins SET ended_by = CASE WHEN operation_id = $1 THEN $1 ELSE NULL END, changed_at = now_ms()"
        " WHERE (operation_id = $1 AND ended_by IS NULL) OR (ended_by = $1 AND operation_id <> $1)",
        operation_id,
    )


async def restore_pins(tx: Tx, operation: Operation, intents: Sequence[Intent]) -> None:
    """Redo the changes of a cancelled operation that is retried."""
    if operation.cause != "request":
        return
    own = await tx.fetch("SELECT id FROM version_pins WHERE operation_id = $1", operation.id)
    if not own and not _ends_pins(operation):
        return
    await _end(tx, _scope_of(operation, intents, operation.generation), operation.id)
    await tx.execute(
        "UPDATE version_pins SET ended_by = NULL, changed_at = now_ms() WHERE operation_id = $1 AND ended_by = $1",
        operation.id,
    )


def _pin(row: Row) -> VersionPin:
    return VersionPin(
        id=row["id"],
        backend=row["backend"],
        target=Target(selector=_decode_selector(row["selector"]), nodes=_decode_nodes(row["nodes"])),
        follows=bool(row["follows"]),
        version=row["version"],
        specs=_decode_specs(row["specs"]),
        reason=row["reason"],
        generation=row["generation"],
        operation_id=row["operation_id"],
        created_by=row["created_by"],
        created_at=row["created_at"],
    )


class VersionPinStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_all(self) -> list[VersionPin]:
        """Pins in force."""

        async def body(tx: Tx) -> list[VersionPin]:
            rows = await tx.fetch("SELECT * FROM version_pins WHERE ended_by IS NULL ORDER BY generation")
            return [_pin(row) for row in rows]

        return await self._database.read(body)

    async def save_build(self, pin_id: str, spec: BackendSpec, *, reason: str) -> bool:
        """Store which digest the pinned version has for one build. False if the pin has ended meanwhile."""

        async def body(tx: Tx) -> bool:
            row = await tx.fetch_one("SELECT * FROM version_pins WHERE id = $1 AND ended_by IS NULL FOR UPDATE", pin_id)
            if row is None:
                return False
            pin = _pin(row)
            if pin.spec_of(spec.build.name) == spec:
                return True
            await tx.execute(
                "UPDATE version_pins SET specs = $2, changed_at = now_ms() WHERE id = $1",
                pin_id,
                _encode_specs(merge_specs(pin.specs, [replace(spec, pinned=True)])),
            )
            detail = {"version": pin.version, "build": spec.build.name, "digest": spec.build.digest, "reason": reason}
            await append_event(tx, actor="policy", action="backend.pin_resolved", subject=pin.backend, detail=detail)
            return True

        return await self._database.write(body)
