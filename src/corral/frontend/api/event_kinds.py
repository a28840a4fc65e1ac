"""The kinds of events of `/api/events`, each read from its store."""

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from corral.controller.backends.progress import LiveProgress
from corral.core.nodes.node import Node
from corral.frontend.api.backends.listing import FleetListing
from corral.frontend.api.models.view import view_model
from corral.frontend.api.nodes.view import count_loads, view_node
from corral.frontend.api.operations.view import view_operation, with_live
from corral.frontend.api.replicas.view import view_replica
from corral.frontend.api.rollouts.view import view_rollout
from corral.frontend.galleries import Galleries
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.http.event_feed import Change, Changes, Kind
from corral.frontend.http.json_response import omit_defaults
from corral.store.backends.operations import OperationStore
from corral.store.backends.rollouts import RolloutStore
from corral.store.nodes.nodes import NodeStore
from corral.store.serving.models import ModelStore, StoredModel
from corral.store.serving.replicas import ReplicaStore

Now = Callable[[], Awaitable[int]]


def _by_content(key: str, shown: object) -> Change:
    """For rows without a change mark: encoded once, and compared by the encoded content."""
    content = msgspec.json.encode(shown)
    return Change(key, content, msgspec.Raw(content))


def node_kind(nodes: NodeStore, replicas: ReplicaStore, in_flight: InFlight) -> Kind:
    async def show(found: list[Node], now_ms: int) -> list[Change]:
        """Counts of replicas are updated when the node changes; the replicas themselves are another kind."""
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


def operation_kind(operations: OperationStore, live: LiveProgress) -> Kind:
    """The store gets an operation's progress every two seconds; in between it comes from the workers' messages."""

    async def read_since(since_ms: int) -> Changes:
        now_ms, changed = await operations.read_changes(since_ms)
        return Changes(
            now_ms=now_ms,
            changed=[_by_content(one.id, view_operation(with_live(one, live.of(one.id)))) for one in changed],
        )

    return Kind(name="operations", read_since=read_since)


def rollout_kind(rollouts: RolloutStore, nodes: NodeStore) -> Kind:
    async def read_since(since_ms: int) -> Changes:
        now_ms, changed = await rollouts.read_changes(since_ms)
        statuses = await nodes.read_statuses() if changed else {}
        views = [view_rollout(one, statuses=statuses, now_ms=now_ms) for one in changed]
        return Changes(now_ms=now_ms, changed=[_by_content(view.id, view) for view in views])

    return Kind(name="rollouts", read_since=read_since)


def backend_kind(listing: FleetListing, now_ms: Now) -> Kind:
    """The items of `/api/fleet/backends`. They are computed from all nodes, so less often than the other kinds."""

    async def read_since(_since_ms: int) -> Changes:
        at_ms = await now_ms()
        listed = await listing.read()
        changed = [Change(name, content, msgspec.Raw(content)) for name, content in listed.items()]
        return Changes(now_ms=at_ms, changed=changed)

    return Kind(name="backends", read_since=read_since, is_whole=True, read_every_s=10.0, min_interval_s=1.0)


def model_kind(models: ModelStore, now_ms: Now) -> Kind:
    """Read only when the models' version counter has changed."""
    known: tuple[int, list[Change]] | None = None

    def show(stored: Iterable[StoredModel]) -> list[Change]:
        return [_by_content(model.name, view_model(model).model_dump(mode="json")) for model in stored]

    async def read_since(_since_ms: int) -> Changes:
        nonlocal known
        at_ms, version = await now_ms(), await models.read_version()
        if known is None or known[0] != version:
            known = version, show(await models.read_all())
        return Changes(now_ms=at_ms, changed=known[1])

    return Kind(name="models", read_since=read_since, is_whole=True)


def replica_kind(replicas: ReplicaStore, in_flight: InFlight, now_ms: Now) -> Kind:
    async def read_since(_since_ms: int) -> Changes:
        at_ms = await now_ms()
        found = await replicas.read_statuses()
        return Changes(
            now_ms=at_ms,
            changed=[_by_content(one.row.id, omit_defaults(view_replica(one, in_flight))) for one in found],
        )

    return Kind(name="replicas", read_since=read_since, is_whole=True)


def gallery_kind(galleries: Galleries, now_ms: Now) -> Kind:
    """Only the fact that a gallery changed: a gallery is large, and clients that show it read it again."""

    async def read_since(_since_ms: int) -> Changes:
        at_ms = await now_ms()
        return Changes(
            now_ms=at_ms,
            changed=[
                Change(edition.name, edition.number, {"name": edition.name, "entries": edition.entries})
                for edition in galleries.editions()
            ],
        )

    return Kind(name="galleries", read_since=read_since, is_whole=True, read_every_s=10.0)
