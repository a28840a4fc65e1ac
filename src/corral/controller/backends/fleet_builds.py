"""What a load installs where its backend is missing: as everywhere else, also after a rollback."""

from collections.abc import Iterable

from corral.controller.backends.lookups import Holds, with_hold
from corral.controller.backends.resolve import Resolution, ResolvedBackend, Resolver
from corral.core.backends.variants import Unresolved
from corral.core.nodes.node import Node, NodeId


class FleetBuilds:
    def __init__(self, resolver: Resolver, holds: Holds) -> None:
        self._resolver, self._holds = resolver, holds

    async def recall(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, Resolution | Unresolved]:
        nodes = list(nodes)
        found = await self._resolver.recall(reference, nodes)
        holds = await self._holds.read_all()
        for node in nodes if holds else ():
            build = found[node.id]
            if isinstance(build, ResolvedBackend):
                found[node.id] = with_hold(node, build, holds)
        return found

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, frozenset[str]]:
        return await self._resolver.find_names(reference, nodes)
