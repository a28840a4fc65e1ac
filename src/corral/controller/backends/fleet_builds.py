"""The builds that loads and corrections install: what the galleries offer, unless the fleet was rolled back."""

from collections.abc import Iterable
from dataclasses import replace

from corral.artifacts.oci.pins import pinned_uri
from corral.controller.backends.resolve import Resolver
from corral.core.backends.build import BuildResolution, ResolvedBackend
from corral.core.backends.variants import Unresolved
from corral.core.backends.version_holds import VersionHold, hold_for
from corral.core.nodes.node import Node, NodeId
from corral.store.backends.version_holds import VersionHoldStore


class FleetBuilds:
    def __init__(self, resolver: Resolver, holds: VersionHoldStore) -> None:
        self._resolver, self._holds = resolver, holds

    async def recall(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, BuildResolution | Unresolved]:
        """By node. Falls back to the last known answer while a gallery or registry cannot be reached."""
        nodes = list(nodes)
        found = await self._resolver.recall(reference, nodes)
        holds = await self._holds.read_all()
        for node in nodes if holds else ():
            resolved = found[node.id]
            if isinstance(resolved, ResolvedBackend):
                found[node.id] = with_hold(node, resolved, holds)
        return found

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, frozenset[str]]:
        """By node: name and alias of the build it would get. No registry is asked."""
        return await self._resolver.find_names(reference, nodes)

    def galleries_text(self, reference: str) -> str:
        """The galleries in which a worker that looks names up itself finds the reference."""
        return self._resolver.galleries_text(reference)


def with_hold(node: Node, resolved: ResolvedBackend, holds: Iterable[VersionHold]) -> ResolvedBackend:
    """The version that the fleet was rolled back to, if a hold matches the node. A LocalAI worker installs only what
    its gallery offers now."""
    spec = hold_for(node, resolved.build.name, holds) if node.speaks_corral else None
    if spec is None:
        return resolved
    build, held = resolved.build, spec.build
    uris = held.uris or tuple(pinned_uri(uri, held.digest) for uri in build.uris)
    return replace(
        resolved,
        build=replace(held, name=build.name, alias=build.alias, uris=uris, manifest=held.manifest or build.manifest),
        reason="the fleet was rolled back to it",
        rolled_back_from=spec.rolled_back_from,
    )
