"""The weights on this machine, as far as frontends name them."""

import asyncio
from dataclasses import dataclass

from corral.core.errors import InvalidInput
from corral.worker.areas import Area, OutsideArea


@dataclass(frozen=True, slots=True)
class ModelFiles:
    area: Area

    async def delete(self, model: str) -> None:
        """A directory, or a file and those named after it; nothing there is done already."""
        try:
            if model.startswith("/"):
                raise OutsideArea(model)
            await asyncio.to_thread(self.area.remove, model)
        except OutsideArea:
            raise InvalidInput(f'model name "{model[:200]}" escapes models directory') from None
