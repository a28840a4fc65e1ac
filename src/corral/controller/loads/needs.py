"""What one more replica of a model takes, from what is known about the model and the machines."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from corral.controller.loads.ports import Builds
from corral.core.backends.deletions import DeletedBackends, Deletion, names_of_installed
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import CorralError, InvalidInput, NotFound
from corral.core.models.load_plan import backend_of, has_weights_of
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import find_backend
from corral.core.nodes.targets import pick_serving
from corral.core.replicas.placement import Need
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView
from corral.store.serving.staged_files import Staged
from corral.store.stores import Stores


class Needs:
    def __init__(self, stores: Stores, builds: Builds, *, shared_models: bool) -> None:
        self._stores, self._builds, self._shared_models = stores, builds, shared_models

    async def find(
        self, model: StoredModel, fleet: FleetView, *, only_node: str | None = None, surge_on: str | None = None
    ) -> Need:
        staged = await self._stores.staged_files.read_staged(model.name)
        sizes = [one.weights_bytes for one in staged.values() if one.weights_bytes is not None]
        wanted = fleet.scheduling.get(model.name)
        selector = wanted.selector if wanted is not None else {}
        eligible = [node for node in pick_serving(fleet.nodes, selector) if only_node in (None, node.id)]
        found = await self._look(backend_of(model.config), eligible)
        deletions = (await read_deletes(self._stores)).find(eligible, found.names)
        return Need(
            model=model.name,
            selector=selector,
            groups=frozenset(model.config.concurrency_groups),
            weights_bytes=max(sizes) if sizes else None,
            measured_bytes=await self._stores.footprints.read_peaks(model.name, model.revision),
            staged_on=await self._find_staged(model, staged),
            variant_problems=found.problems,
            to_install_on=found.missing,
            unconfirmed_on=found.unconfirmed,
            deleted={node: deletion.reason for node, deletion in deletions.items()},
            only_node=only_node,
            surge_on=surge_on,
            shared_directory=self._shared_models,
        )

    async def _find_staged(self, model: StoredModel, staged: Mapping[str, Staged]) -> frozenset[str]:
        """Nodes that have all of the model's files, be it from a revision that differs in other things."""
        enough = {model.revision}
        for revision in {one.revision for one in staged.values()} - enough:
            with suppress(NotFound, InvalidInput):  # it is forgotten, or this version cannot read it
                if has_weights_of(await self._stores.models.read_config(model.name, revision), model.config):
                    enough.add(revision)
        return frozenset(node for node, one in staged.items() if one.revision in enough)

    async def find_deletions(self, backend: str, nodes: Sequence[Node]) -> dict[str, Deletion]:
        """By node: the delete that keeps the backend away from it."""
        deletes = await read_deletes(self._stores)
        if not deletes:
            return {}
        names, missing = await self._look_at_installed(backend, nodes)
        for node_id, build_names in (await self._builds.find_names(backend, missing)).items():
            names[node_id] |= build_names
        return deletes.find(nodes, names)

    async def _look(self, backend: str, nodes: Sequence[Node]) -> "_Found":
        """What a load would have on each node. One that has the backend already needs no build."""
        names, missing = await self._look_at_installed(backend, nodes)
        if not missing:
            return _Found(names=names)
        lacking = frozenset(node.id for node in missing)
        try:
            builds = await self._builds.recall(backend, missing)
        except CorralError as error:
            return _Found(names=names, missing=lacking, problems={node.id: str(error) for node in missing})
        problems: dict[str, str] = {}
        unconfirmed = set()
        for node_id, entry in builds.items():
            if isinstance(entry, Unfit):
                problems[node_id] = entry.reason
            elif isinstance(entry, Unresolved):
                problems[node_id] = f"it does not have {backend}, which cannot be looked up now: {entry.error}"
            else:
                names[node_id] |= {entry.build.name, entry.build.alias} - {""}
                if entry.unconfirmed:
                    unconfirmed.add(node_id)
        return _Found(names=names, missing=lacking, problems=problems, unconfirmed=frozenset(unconfirmed))

    async def _look_at_installed(
        self, backend: str, nodes: Sequence[Node]
    ) -> tuple[dict[NodeId, set[str]], list[Node]]:
        """All that the backend goes by on each node, and the nodes that do not have it."""
        installed = await self._stores.observed.read_backends()
        names: dict[NodeId, set[str]] = {}
        missing = []
        for node in nodes:
            here = installed.get(node.id, ())
            build = find_backend(here, backend)
            names[node.id] = {backend, *(names_of_installed(here, build) if build is not None else ())}
            if build is None:
                missing.append(node)
        return names, missing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    names: Mapping[NodeId, set[str]]
    """By node: all that the backend goes by there."""
    missing: frozenset[str] = frozenset()
    """Nodes that do not have it."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By node: why it can have no build."""
    unconfirmed: frozenset[str] = frozenset()
    """Nodes that would have to fetch a build from a source that cannot be asked now."""


async def read_deletes(stores: Stores) -> DeletedBackends:
    return await stores.intents.read_deletes(await stores.policies.read_all())
