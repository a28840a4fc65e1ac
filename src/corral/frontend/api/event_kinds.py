"""The kinds of things that `/api/events` tells, read from the stores that own them."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec

from corral.core.backends.operations import Operation
from corral.core.nodes.node import Node, NodeId
from corral.core.replicas.replica import Replica
from corral.frontend.api.backends.listing import FleetListing
from corral.frontend.api.backends.service import Progress
from corral.frontend.api.galleries.service import Edition
from corral.frontend.api.models.routes import model_view
from corral.frontend.api.nodes.view import count_loads, view_node
from corral.frontend.api.operations.view import view_operation, with_live
from corral.frontend.api.replicas.view import InFlight, node_model
from corral.frontend.http.event_feed import Change, Changes, Kind
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import StandingReplica


class NodeChanges(Protocol):
    async def read_changes(self, since_ms: int) -> tuple[int, list[Node], list[NodeId]]: ...

    async def read_all(self) -> list[Node]: ...

    async def now_ms(self) -> int: ...


class OperationChanges(Protocol):
    async def read_changes(self, since_ms: int) -> tuple[int, list[Operation]]: ...


class ModelEvents(Protocol):
    async def read_all(self) -> list[StoredModel]: ...

    async def read_version(self) -> int: ...


class ReplicaEvents(Protocol):
    async def read_all(self) -> list[Replica]: ...

    async def read_standing(self) -> list[StandingReplica]: ...


class Editions(Protocol):
    def editions(self) -> list[Edition]: ...


Now = Callable[[], Awaitable[int]]


def _by_content(key: str, shown: object) -> Change:
    """For what differs without saying so: written once, and compared as it is written."""
    content = msgspec.json.encode(shown)
    return Change(key, content, msgspec.Raw(content))


def node_kind(nodes: NodeChanges, replicas: ReplicaEvents, in_flight: InFlight) -> Kind:
    async def show(found: list[Node], now_ms: int) -> list[Change]:
        """What runs on them is counted when they change otherwise; the replicas themselves are another kind."""
        loads = count_loads(await replicas.read_all(), in_flight.total) if found else {}
        return [
            Change(node.id, node.changed_at, view_node(node, now_ms=now_ms, load=loads.get(node.id))) for node in found
        ]

    async def read_since(since_ms: int) -> Changes:
        now_ms, changed, removed = await nodes.read_changes(since_ms)
        return Changes(now_ms=now_ms, changed=await show(changed, now_ms), removed=removed)

    async def read_all() -> Changes:
        now_ms = await nodes.now_ms()
        return Changes(now_ms=now_ms, changed=await show(await nodes.read_all(), now_ms))

    return Kind(name="nodes", read_since=read_since, read_all=read_all)


def operation_kind(operations: OperationChanges, live: Progress) -> Kind:
    """The store has an operation's progress every two seconds; in between the workers are heard directly."""

    async def read_since(since_ms: int) -> Changes:
        now_ms, changed = await operations.read_changes(since_ms)
        return Changes(
            now_ms=now_ms,
            changed=[_by_content(one.id, view_operation(with_live(one, live.of(one.id)))) for one in changed],
        )

    return Kind(name="operations", read_since=read_since)


def backend_kind(listing: FleetListing, now_ms: Now) -> Kind:
    """What `/api/fleet/backends` lists. It is put together from all nodes, so not as often as the others."""

    async def read_since(_since_ms: int) -> Changes:
        at_ms = await now_ms()
        listed = await listing.read()
        changed = [Change(name, content, msgspec.Raw(content)) for name, content in listed.items()]
        return Changes(now_ms=at_ms, changed=changed)

    return Kind(name="backends", read_since=read_since, is_whole=True, look_every_s=10.0, least_between_s=1.0)


def model_kind(models: ModelEvents, now_ms: Now) -> Kind:
    """Read only when the counter that every change of a model moves has moved."""
    known: tuple[int, list[Change]] | None = None

    def show(stored: Iterable[StoredModel]) -> list[Change]:
        return [_by_content(model.name, model_view(model).model_dump(mode="json")) for model in stored]

    async def read_since(_since_ms: int) -> Changes:
        nonlocal known
        at_ms, version = await now_ms(), await models.read_version()
        if known is None or known[0] != version:
            known = version, show(await models.read_all())
        return Changes(now_ms=at_ms, changed=known[1])

    return Kind(name="models", read_since=read_since, is_whole=True)


def replica_kind(replicas: ReplicaEvents, in_flight: InFlight, now_ms: Now) -> Kind:
    async def read_since(_since_ms: int) -> Changes:
        at_ms = await now_ms()
        found = await replicas.read_standing()
        return Changes(
            now_ms=at_ms,
            changed=[_by_content(one.row.id, node_model(one, in_flight.total(one.row.id))) for one in found],
        )

    return Kind(name="replicas", read_since=read_since, is_whole=True)


def gallery_kind(galleries: Editions, now_ms: Now) -> Kind:
    """That there is something new to choose from, not what: a gallery is large, and who shows it reads it again."""

    async def read_since(_since_ms: int) -> Changes:
        at_ms = await now_ms()
        return Changes(
            now_ms=at_ms,
            changed=[
                Change(edition.name, edition.number, {"name": edition.name, "entries": edition.entries})
                for edition in galleries.editions()
            ],
        )

    return Kind(name="galleries", read_since=read_since, is_whole=True, look_every_s=10.0)
