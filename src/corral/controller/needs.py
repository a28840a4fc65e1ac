"""What one more replica of a model takes, from what is known about the model and the machines."""

from collections.abc import Sequence

from corral.controller.load_ports import Builds
from corral.core.errors import NotFound
from corral.core.load_plan import backend_of
from corral.core.nodes import Node
from corral.core.observed import find_backend
from corral.core.placement import Need
from corral.core.variants import Unfit
from corral.store.models import StoredModel
from corral.store.replicas import FleetView
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
        return Need(
            model=model.name,
            selector=wanted.selector if wanted is not None else {},
            groups=frozenset(model.config.concurrency_groups),
            weights_bytes=max(sizes) if sizes else None,
            measured_bytes=await self._stores.load_memory.read_peaks(model.name, model.revision),
            staged_on=frozenset(node for node, one in staged.items() if one.revision == model.revision),
            variant_problems=await self._variant_problems(backend_of(model.config), fleet.nodes),
            only_node=only_node,
            surge_on=surge_on,
            shared_directory=self._shared_models,
        )

    async def _variant_problems(self, backend: str, nodes: Sequence[Node]) -> dict[str, str]:
        """Why a node can have no build of the backend. One that has it already needs none."""
        installed = await self._stores.observed.read_backends()
        missing = [node for node in nodes if find_backend(installed.get(node.id, ()), backend) is None]
        if not missing:
            return {}
        try:
            found = await self._builds.resolve(backend, missing)
        except NotFound as error:
            return {node.id: str(error) for node in missing}
        return {node_id: entry.reason for node_id, entry in found.items() if isinstance(entry, Unfit)}
