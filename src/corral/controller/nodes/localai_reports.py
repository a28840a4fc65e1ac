"""The report of a LocalAI worker, which sends none: what it answers, with what the galleries and the store know."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from corral.bus.messages import ListedBackend, ListReply, ModelsRunningReply, NodeReport, ReportedProcess, decode
from corral.bus.subjects import BACKEND_LIST, MODELS_RUNNING, node_subject
from corral.core.backends.runnable import GalleryEntry
from corral.core.errors import NoResponders, Unavailable
from corral.core.nodes.node import Node
from corral.core.nodes.observed import LOCALAI_INSTANCE, ProcessStatus
from corral.core.replicas.replica import COMING, Replica
from corral.core.replicas.routing import LOCALAI_GRPC
from corral.store.nodes.nodes import NodeStore
from corral.store.serving.replicas import ReplicaStore
from corral.system import Clock

ASK_WITHIN_S = 10.0


class AskBus(Protocol):
    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class NamedEntry(GalleryEntry, Protocol):
    @property
    def alias(self) -> str: ...


@dataclass(frozen=True, slots=True)
class GalleryNames:
    """What the builds of all galleries are called otherwise."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    """By build."""
    families: Mapping[str, str] = field(default_factory=dict)
    """By build: the meta backend that leads to it. One that has the build's alias as its name comes first."""


def names_of(entries: Iterable[NamedEntry]) -> GalleryNames:
    """The first gallery that has a build decides."""
    known = tuple(entries)
    aliases: dict[str, str] = {}
    for entry in known:
        if entry.uri:
            aliases.setdefault(entry.name, entry.alias)
    families: dict[str, str] = {}
    for meta in (entry for entry in known if not entry.uri):
        for build in meta.capabilities.values():
            if aliases.get(build) == meta.name:
                families[build] = meta.name
            else:
                families.setdefault(build, meta.name)
    return GalleryNames(aliases, families)


def complete_listing(listed: Sequence[ListedBackend], names: GalleryNames) -> list[ListedBackend]:
    """The backends as a Corral worker lists them: every build with its alias, and every family with its build.

    LocalAI leaves a family out where a build has its name as alias, adds rows for aliases (until May 2026), and takes
    the gallery into the name of a family that was requested as `gallery@name`."""
    builds = {row.name: row for row in listed if not row.is_meta and not _is_alias_row(row, listed, names)}
    rows = [msgspec.structs.replace(row, alias=names.aliases.get(row.name, "")) for row in builds.values()]
    metas = {row.name.rpartition("@")[2]: row for row in listed if row.is_meta}
    families: dict[str, ListedBackend] = {}
    for build in builds.values():
        family = names.families.get(build.name) or names.aliases.get(build.name, "")
        if family:
            families.setdefault(family, build)  # of several builds, a LocalAI worker does not tell which it starts
    shown = {name: _family_row(name, metas.get(name, build), build.name) for name, build in families.items()}
    shown |= {name: _family_row(name, row, None) for name, row in metas.items() if name not in shown}
    return [*rows, *(row for name, row in shown.items() if name not in builds)]


def _is_alias_row(row: ListedBackend, listed: Sequence[ListedBackend], names: GalleryNames) -> bool:
    """Whether the row repeats a build under its alias."""
    return any(
        other.name != row.name
        and names.aliases.get(other.name) == row.name
        and (other.uri, other.digest) == (row.uri, row.digest)
        for other in listed
    )


def _family_row(family: str, shown: ListedBackend, build: str | None) -> ListedBackend:
    return ListedBackend(
        name=family,
        is_system=shown.is_system,
        is_meta=True,
        installed_at=shown.installed_at,
        gallery_url=shown.gallery_url,
        concrete=build,
    )


class LocalAiReporter:
    def __init__(
        self,
        bus: AskBus,
        *,
        nodes: NodeStore,
        replicas: ReplicaStore,
        names: Callable[[], Awaitable[GalleryNames]],
        refuses: Callable[[str], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        """`refuses`: whether nobody listens at an address."""
        self._bus, self._nodes, self._replicas, self._clock = bus, nodes, replicas, clock
        self._names, self._refuses = names, refuses

    async def request_report(self, node_id: str) -> NodeReport | None:
        """None for a node that runs a Corral worker. Raises NoResponders, Unavailable, OutcomeUnknown."""
        node = await self._nodes.read_one(node_id)
        if node.speaks_corral:
            return None
        sequence = self._clock.now_ms()  # taken before the request: the later request wins
        listed = decode(await self._request(node, BACKEND_LIST), ListReply)
        if listed.error:
            raise Unavailable(f"node {node.name} cannot list its backends: {listed.error}")
        processes = await self._read_processes(node)
        return NodeReport(
            node=node_id,
            instance=LOCALAI_INSTANCE,
            epoch=node.epoch,
            sequence=sequence,
            backends=complete_listing(listed.backends or [], await self._names()),
            processes=processes,
        )

    async def _read_processes(self, node: Node) -> list[ReportedProcess]:
        """All processes. A worker from before 2026-07-27 cannot list them; there, those of our replicas count as
        running unless nobody listens at their address."""
        try:
            running = decode(await self._request(node, MODELS_RUNNING), ModelsRunningReply)
        except NoResponders:
            return await self._probe(node)
        if running.error:
            raise Unavailable(f"node {node.name} cannot list its processes: {running.error}")
        return [
            _process(f"{one.model_id}#{one.replica_index}", one.model_id, one.replica_index, one.address or "")
            for one in running.models
        ]

    async def _probe(self, node: Node) -> list[ReportedProcess]:
        here = await self._replicas.read_of_node(node.id)
        rows = [row for row in here if row.address and row.state not in COMING and row.epoch == node.epoch]
        gone = await asyncio.gather(*(self._refuses(row.address) for row in rows))
        return [_process_of(row) for row, is_gone in zip(rows, gone, strict=True) if not is_gone]

    async def _request(self, node: Node, verb: str) -> bytes:
        return await self._bus.request(node_subject(node.id, verb), b"{}", within_s=ASK_WITHIN_S)


def _process_of(row: Replica) -> ReportedProcess:
    return _process(row.process_key, row.model, row.slot, row.address)


def _process(key: str, model: str, slot: int, address: str) -> ReportedProcess:
    return ReportedProcess(
        process_key=key,
        model_id=model,
        replica_index=slot,
        backend="",
        digest="",
        protocol=LOCALAI_GRPC,
        state=ProcessStatus.READY,
        address=address or None,
    )
