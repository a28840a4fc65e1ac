"""Words between frontends that something changed. Only hints: who misses one looks by itself a little later."""

from collections.abc import Callable

import structlog

from corral.bus.client import Bus, BusMessage
from corral.bus.messages import NodesChanged, RoutesChanged, encode
from corral.bus.subjects import ANYTHING_CHANGED, ROUTES_CHANGED, changed_kind, changed_subject
from corral.core.errors import CorralError

log = structlog.get_logger()


class ChangeNotifier:
    def __init__(self, bus: Bus, frontend_id: str, *, notify: Callable[[str], None]) -> None:
        """`notify`: what to wake here when rows of a kind changed, here or elsewhere."""
        self._bus, self._frontend_id, self._poke = bus, frontend_id, notify

    async def start(self) -> None:
        await self._bus.serve(ANYTHING_CHANGED, self._hear, concurrency=8)

    async def tell(self, kind: str = "nodes") -> None:
        self._poke(kind)
        await self._publish(changed_subject(kind), encode(NodesChanged(frontend=self._frontend_id)))

    async def tell_routes(self) -> None:
        await self._publish(ROUTES_CHANGED, encode(RoutesChanged(frontend=self._frontend_id)))

    async def _hear(self, message: BusMessage) -> None:
        self._poke(changed_kind(message.subject))

    async def _publish(self, subject: str, data: bytes) -> None:
        try:
            await self._bus.publish(subject, data)
        except CorralError as error:
            log.debug("hint.not_sent", error=str(error))
