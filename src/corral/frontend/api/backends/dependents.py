"""What deleting a backend means for the models that use it."""

from typing import Any

from corral.core.backends.dependents import Dependent, describe_dependents, find_dependents
from corral.core.backends.planning import as_known
from corral.core.errors import InvalidInput
from corral.core.models.load_plan import backend_of
from corral.core.nodes.targets import Target
from corral.frontend.api.backends.service import FleetService
from corral.store.serving.models import StoredModel
from corral.store.stores import Stores


class BackendUses:
    def __init__(self, stores: Stores, fleet: FleetService) -> None:
        self._stores, self._fleet = stores, fleet

    async def read(self, reference: str, target: Target) -> dict[str, Any]:
        """`models` with the replicas of each that stop, and the same in words."""
        models = {model.name: _backend(model) for model in await self._stores.models.read_all() if model.served}
        states = await self._fleet.read_targeted(target)
        uses: list[Dependent] = find_dependents(
            states,
            as_known(reference, states).rpartition("@")[2],
            models,
            await self._stores.replicas.read_all(),
        )
        shown = [{"model": use.model, "replicas": use.replicas} for use in uses]
        return {"models": shown, "consequence": describe_dependents(uses)}


def _backend(model: StoredModel) -> str:
    try:
        return backend_of(model.config)
    except InvalidInput:
        return ""
