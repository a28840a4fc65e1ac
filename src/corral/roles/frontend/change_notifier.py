"""Change notifications between frontends. They only save time: a frontend that misses one reads the store a little
later anyway."""

from collections.abc import Callable

import structlog

from corral.bus.client import Bus, BusMessage
from corral.bus.messages import NodesChanged, RoutesChanged, encode
from corral.bus.subjects import ANYTHING_CHANGED, ROUTES_CHANGED, changed_kind, changed_subject
from corral.core.errors import CorralError

log = structlog.get_logger()


class ChangeNotifier:
    def __init__(self, bus: Bus, frontend_id: str, *, notify: Callable[[str], None]) -> None:
        """`notify`: called when rows of a kind changed, here or on another frontend."""
        self._bus, self._frontend_id, self._notify = bus, frontend_id, notify

    async def start(self) -> None:
        await self._bus.serve(ANYTHING_CHANGED, self._on_change, concurrency=8)

    async def announce(self, kind: str = "nodes") -> None:
        self._notify(kind)
        await self._publish(changed_subject(kind), encode(NodesChanged(frontend=self._frontend_id)))

    async def announce_routes(self) -> None:
        await self._publish(ROUTES_CHANGED, encode(RoutesChanged(frontend=self._frontend_id)))

    async def _on_change(self, message: BusMessage) -> None:
        self._notify(changed_kind(message.subject))

    async def _publish(self, subject: str, data: bytes) -> None:
        try:
            await self._bus.publish(subject, data)
        except CorralError as error:
            log.debug("change_notification.not_sent", error=str(error))
