"""The last report of every node: its backends and processes. A newer report replaces an older one completely."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import Observation, ObservedBackend, ObservedProcess, ProcessStatus, ProcessTable
from corral.core.nodes.process_exits import EndedProcess, new_exits
from corral.store.backends.version_exits import record_exits
from corral.store.engine.counters import ROUTES, bump_counter
from corral.store.engine.database import Database, Row, Tx
from corral.store.engine.sql import in_list, places

SEEN_EVERY_MS = 15_000
"""An unchanged report of a Corral worker only updates the time of the node's last report, at most this often."""

_decode_processes = lru_cache(maxsize=4096)(msgspec.json.Decoder(tuple[ObservedProcess, ...]).decode)
_decode_versions = msgspec.json.Decoder(tuple[str, ...]).decode
_COLUMNS = (
    "name", "is_meta", "is_system", "concrete", "alias", "version", "digest", "uri", "gallery_url", "installed_at",
    "generation", "versions", "problem",
)  # fmt: skip
SELECT_BACKEND = f"SELECT node_id, {', '.join(_COLUMNS)} FROM observed_backends"  # noqa: S608  column names are ours


def fingerprint(observation: Observation) -> str:
    """A hash of the report's content; an unchanged report has the same one."""
    content = (observation.instance, observation.epoch, observation.backends, observation.processes)
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def read_backend_row(row: Row) -> ObservedBackend:
    return _backend_of(tuple(row)[1:])


@lru_cache(maxsize=16384)  # like nodes, read far more often than changed, and equal on many nodes
def _backend_of(row: tuple[Any, ...]) -> ObservedBackend:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["is_meta"], values["is_system"] = bool(values["is_meta"]), bool(values["is_system"])
    values["versions"] = _decode_versions(values["versions"])
    return ObservedBackend(**values)


async def read_node_backends(tx: Tx, ids: Iterable[NodeId] | None = None) -> dict[NodeId, list[ObservedBackend]]:
    """By node, of all nodes or of these. Nodes that have never reported are left out."""
    chosen = None if ids is None else in_list(ids)
    if chosen == []:
        return {}
    where = "" if chosen is None else f" WHERE node_id IN ({places(len(chosen))})"
    arguments = chosen or []
    known = await tx.fetch(f"SELECT node_id FROM observed_nodes{where}", *arguments)  # noqa: S608
    found: dict[NodeId, list[ObservedBackend]] = {NodeId(row["node_id"]): [] for row in known}
    for row in await tx.fetch(f"{SELECT_BACKEND}{where} ORDER BY node_id, name", *arguments):
        found.setdefault(NodeId(row["node_id"]), []).append(read_backend_row(row))
    return found


async def read_tables(tx: Tx) -> dict[str, ProcessTable]:
    """By node."""
    rows = await tx.fetch("SELECT node_id, epoch, processes, seen_at FROM observed_nodes")
    return {row["node_id"]: _table(row) for row in rows}


def _table(row: Row) -> ProcessTable:
    return ProcessTable(epoch=row["epoch"], processes=_decode_processes(row["processes"]), seen_at=row["seen_at"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReports:
    changed: tuple[NodeId, ...] = ()
    """Nodes whose report differs from the previous one."""
    routes: bool = False
    """Whether the changes affect where requests can go."""


class ObservedStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, observations: Sequence[Observation]) -> RecordedReports:
        """Store the observations that are newer than the stored ones."""
        newest = {observation.node_id: observation for observation in sorted(observations, key=lambda o: o.order)}
        if not newest:
            return RecordedReports()

        async def body(tx: Tx) -> RecordedReports:
            ids = sorted(newest)
            listed = in_list(ids)
            rows = await tx.fetch(
                "SELECT node_id, epoch, sequence, fingerprint, processes, seen_at, now_ms() AS now FROM observed_nodes"  # noqa: S608
                f" WHERE node_id IN ({places(len(listed))}) ORDER BY node_id FOR UPDATE",
                *listed,
            )
            stored = {NodeId(row["node_id"]): row for row in rows}
            changed: list[tuple[Observation, str]] = []
            seen_again = []
            for node_id in ids:
                row, observation = stored.get(node_id), newest[node_id]
                if row is not None and (row["epoch"], row["sequence"]) >= observation.order:
                    continue
                digest = fingerprint(observation)
                if row is None or row["fingerprint"] != digest:
                    changed.append((observation, digest))
                elif observation.is_polled or row["now"] - row["seen_at"] >= SEEN_EVERY_MS:
                    seen_again.append(observation)
            await _touch(tx, seen_again)
            await _replace(tx, changed)
            await record_exits(tx, _new_exits(stored, [observation for observation, _ in changed]))
            routes = any(_serving(new) != _served(stored.get(new.node_id)) for new, _ in changed)
            if routes:
                await bump_counter(tx, ROUTES)
            return RecordedReports(changed=tuple(observation.node_id for observation, _ in changed), routes=routes)

        return await self._database.write(body)

    async def read_backends(self, ids: Iterable[NodeId] | None = None) -> dict[NodeId, list[ObservedBackend]]:
        async def body(tx: Tx) -> dict[NodeId, list[ObservedBackend]]:
            return await read_node_backends(tx, ids)

        return await self._database.read(body)

    async def read_holding(self, digest: str) -> dict[NodeId, list[ObservedBackend]]:
        """Backends of which a node has this version, current or previous; by node."""

        async def body(tx: Tx) -> dict[NodeId, list[ObservedBackend]]:
            rows = await tx.fetch(
                f"{SELECT_BACKEND} WHERE digest = $1 OR versions LIKE $2",
                digest,
                f"%{msgspec.json.encode(digest).decode()}%",
            )
            found: dict[NodeId, list[ObservedBackend]] = {}
            for row in rows:
                found.setdefault(NodeId(row["node_id"]), []).append(read_backend_row(row))
            return found

        return await self._database.read(body)

    async def read_processes(self) -> dict[NodeId, tuple[ObservedProcess, ...]]:
        async def body(tx: Tx) -> dict[NodeId, tuple[ObservedProcess, ...]]:
            rows = await tx.fetch("SELECT node_id, processes FROM observed_nodes")
            return {NodeId(row["node_id"]): _decode_processes(row["processes"]) for row in rows}

        return await self._database.read(body)

    async def read_tables(self) -> dict[str, ProcessTable]:
        async def body(tx: Tx) -> dict[str, ProcessTable]:
            return await read_tables(tx)

        return await self._database.read(body)

    async def read_ages_s(self) -> Mapping[NodeId, tuple[int, float]]:
        """By node: the epoch of its last report, and its age, to about fifteen seconds."""

        async def body(tx: Tx) -> dict[NodeId, tuple[int, float]]:
            rows = await tx.fetch("SELECT node_id, epoch, now_ms() - seen_at AS age FROM observed_nodes")
            return {NodeId(row["node_id"]): (row["epoch"], row["age"] / 1000) for row in rows}

        return await self._database.read(body)


_Serving = tuple[int, frozenset[tuple[str, int | None, int | None]]]


def _serving(table: Observation | ProcessTable) -> _Serving:
    """The part of a process table that routes depend on."""
    ready = (process for process in table.processes if process.state == ProcessStatus.READY)
    return table.epoch, frozenset((process.process_key, process.pid, _limit(process)) for process in ready)


def _limit(process: ObservedProcess) -> int | None:
    return process.engine.limit if process.engine is not None else None


def _served(row: Row | None) -> _Serving | None:
    return _serving(_table(row)) if row is not None else None


def _new_exits(stored: Mapping[NodeId, Row], changed: Sequence[Observation]) -> dict[tuple[NodeId, EndedProcess], int]:
    found = {}
    for new in changed:
        row = stored.get(new.node_id)
        before = _table(row).processes if row is not None else ()
        for process, exits in new_exits(before, new.processes).items():
            found[new.node_id, process] = exits
    return found


async def _touch(tx: Tx, observations: Sequence[Observation]) -> None:
    await tx.execute_many(
        "UPDATE observed_nodes SET sequence = $2, seen_at = now_ms() WHERE node_id = $1",
        [(observation.node_id, observation.sequence) for observation in observations],
    )


async def _replace(tx: Tx, changed: Sequence[tuple[Observation, str]]) -> None:
    if not changed:
        return
    await tx.execute_many(
        "INSERT INTO observed_nodes (node_id, instance, epoch, sequence, fingerprint, processes, seen_at, changed_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, now_ms(), now_ms()) ON CONFLICT (node_id) DO UPDATE SET"
        " instance = excluded.instance, epoch = excluded.epoch, sequence = excluded.sequence,"
        " fingerprint = excluded.fingerprint, processes = excluded.processes, seen_at = excluded.seen_at,"
        " changed_at = excluded.changed_at",
        [
            (
                observation.node_id,
                observation.instance,
                observation.epoch,
                observation.sequence,
                digest,
                msgspec.json.encode(observation.processes).decode(),
            )
            for observation, digest in changed
        ],
    )
    ids = in_list(observation.node_id for observation, _ in changed)
    await tx.execute(f"DELETE FROM observed_backends WHERE node_id IN ({places(len(ids))})", *ids)  # noqa: S608
    columns = ("node_id", *_COLUMNS)
    await tx.execute_many(
        f"INSERT INTO observed_backends ({', '.join(columns)}, seen_at)"  # noqa: S608
        f" VALUES ({places(len(columns))}, now_ms())",
        [(observation.node_id, *_values(backend)) for observation, _ in changed for backend in observation.backends],
    )


def _values(backend: ObservedBackend) -> list[object]:
    encoded = {"versions": msgspec.json.encode(backend.versions).decode()}
    return [encoded[column] if column in encoded else getattr(backend, column) for column in _COLUMNS]
