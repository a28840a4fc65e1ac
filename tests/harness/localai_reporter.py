"""Reports of LocalAI's workers without galleries."""

from collections.abc import Collection

from corral.bus.client import Bus
from corral.controller.nodes.localai_reports import GalleryNames, LocalAiReporter
from corral.store.stores import Stores
from corral.system import SystemClock


def make_reporter(
    stores: Stores, bus: Bus, *, names: GalleryNames | None = None, gone: Collection[str] = ()
) -> LocalAiReporter:
    """`gone`: addresses at which nobody listens."""

    async def read_names() -> GalleryNames:
        return names or GalleryNames()

    async def refuses(address: str) -> bool:
        return address in gone

    return LocalAiReporter(
        bus,
        nodes=stores.nodes,
        replicas=stores.replicas,
        names=read_names,
        refuses=refuses,
        clock=SystemClock(),
    )
