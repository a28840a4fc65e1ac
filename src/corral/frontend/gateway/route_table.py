"""The route table in memory. It follows the store: notifications make it current soon, and a read each half second
makes up for lost ones."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from corral.core.errors import CorralError, Unavailable
from corral.core.replicas.routing import RouteReplica, RouteSnapshot
from corral.core.suggestions import near_names
from corral.frontend.gateway.endpoints import Endpoint, ServedModel
from corral.frontend.gateway.public_routes import RoutedName
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

READ_EVERY_S = 0.5
READ_WITHIN_S = 10.0


class RouteSource(Protocol):
    """Where the routes are stored."""

    async def read_version(self) -> int:
        """Grows with every change of models, replicas or nodes that affects routing."""
        ...

    async def read_routes(self) -> RouteSnapshot: ...


class RouteTable:
    def __init__(self, source: RouteSource, *, make_endpoint: Callable[[ServedModel, RouteReplica], Endpoint]) -> None:
        self._source = source
        self._make_endpoint = make_endpoint
        self.by_name: dict[str, ServedModel] = {}
        self.public: dict[str, RoutedName] = {}
        """Routes by their names. One may have the name of a model, and is then meant."""
        self._models: dict[str, ServedModel] = {}
        self._notified = asyncio.Event()
        self._changed = asyncio.Event()
        self._failing = False
        self._reading = asyncio.Lock()
        self._reads = self._finished = 0
        self.version = -1
        self.on_change: Callable[[Sequence[ServedModel]], None] = lambda removed: None
        """Called with the models that are no longer in the table."""

    def models(self) -> Iterable[ServedModel]:
        return self._models.values()

    def endpoints(self) -> Iterable[Endpoint]:
        return (endpoint for served in self._models.values() for endpoint in served.endpoints)

    def near(self, name: str, *, allowed: frozenset[str] | None) -> list[str]:
        known = [name for name, served in self.by_name.items() if allowed is None or served.name in allowed]
        known += [name for name in self.public if allowed is None or name in allowed]
        return near_names(name, known)

    def notify(self) -> None:
        self._notified.set()

    async def wait_for_change(self) -> None:
        await self._changed.wait()

    def apply(self, snapshot: RouteSnapshot) -> None:
        """A replica that is not in the snapshot gets no further requests. Its open requests continue."""
        kept = {_identity(endpoint.replica): endpoint for endpoint in self.endpoints()}
        models: dict[str, ServedModel] = {}
        for route in snapshot.routes:
            served = self._models.get(route.model) or ServedModel(route)
            served.follow(route)
            endpoints = []
            for replica in route.replicas:
                endpoint = kept.pop(_identity(replica), None) or self._make_endpoint(served, replica)
                endpoint.follow(replica)
                endpoints.append(endpoint)
            served.set_endpoints(endpoints)
            models[route.model] = served
        removed = [served for name, served in self._models.items() if name not in models]
        for served in removed:
            served.is_removed = True
            served.set_endpoints([])
        for endpoint in kept.values():
            endpoint.link.close()
        self._models = models
        aliases = {alias: served for served in models.values() for alias in served.route.aliases}
        self.by_name = {**aliases, **models}
        self.public = {route.name: RoutedName(route, models) for route in snapshot.public}
        self.version = snapshot.version
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change(removed)

    async def follow(self) -> None:
        while True:
            await wait_or_timeout(self._notified, within_s=READ_EVERY_S)
            await self._read()

    async def _read(self) -> None:
        """While the store does not answer, the table stays as it is: replicas keep serving."""
        try:
            await self.catch_up()
        except CorralError as error:
            if not self._failing:
                log.warning("routes.read_failed", error=str(error))
            self._failing = True
            await asyncio.sleep(READ_EVERY_S)  # before the caller repeats it
        else:
            self._failing = False

    async def catch_up(self) -> None:
        """Makes the table at least as new as the store was when this was called. Concurrent calls share one read.

        One read at a time: otherwise an older result could be applied after a newer one."""
        before = self._reads
        try:
            async with asyncio.timeout(READ_WITHIN_S), self._reading:
                if self._finished > before:
                    return
                self._reads += 1
                if await self._source.read_version() != self.version:
                    self.apply(await self._source.read_routes())
                    log.info("routes.changed", version=self.version, models=len(self._models))
                self._finished = self._reads
        except TimeoutError:
            raise Unavailable(f"the store did not return the routes within {READ_WITHIN_S:g} s") from None


def _identity(replica: RouteReplica) -> tuple[object, ...]:
    """Equal for the same process, whichever revision of the model it serves and however many requests it takes."""
    return replica.id, replica.address, replica.protocol, replica.token, replica.generation, replica.node_name
