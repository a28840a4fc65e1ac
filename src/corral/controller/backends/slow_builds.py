"""Reads which nodes of the fleet have a CPU build although they have an accelerator."""

import asyncio
from collections.abc import Mapping, Sequence

from corral.bus.node_api import decode_facts
from corral.controller.backends.resolve import Catalogues, Resolver
from corral.core.backends.slow_builds import SlowBuild, find_slow_builds
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.targets import takes_backends
from corral.store.backends.observed import ObservedStore
from corral.store.nodes.nodes import NodeStore


class SlowBuilds:
    def __init__(self, catalogues: Catalogues, resolver: Resolver, nodes: NodeStore, observed: ObservedStore) -> None:
        self._catalogues, self._resolver, self._nodes, self._observed = catalogues, resolver, nodes, observed

    async def read(self, nodes: Sequence[Node] | None = None) -> list[SlowBuild]:
        """Of these nodes, or of all, by node and backend."""
        chosen = [node for node in (await self._nodes.read_all() if nodes is None else nodes) if takes_backends(node)]
        galleries = (await self._catalogues.backends()).by_gallery
        installed = await self._observed.read_backends([node.id for node in chosen])

        def find(lacking: Mapping[NodeId, frozenset[str]]) -> list[SlowBuild]:
            found = []
            for node in sorted(chosen, key=lambda one: one.name):
                reason = (decode_facts(node.facts).capability_reason or "") if node.facts else ""
                found += find_slow_builds(
                    node,
                    installed.get(node.id, ()),
                    galleries,
                    capability_reason=reason,
                    lacking=lacking.get(node.id, ()),
                )
            return found

        found = await asyncio.to_thread(find, {})  # there may be a thousand nodes
        lacking = await self._resolver.read_lacking({one.backend for one in found}, chosen)
        return await asyncio.to_thread(find, lacking) if lacking else found
