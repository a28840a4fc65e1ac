"""The route table in memory. It follows the store: a hint says when to look, a look each half second misses nothing."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from corral.core.errors import CorralError, Unavailable
from corral.core.replicas.routing import RouteReplica, RouteSnapshot
from corral.core.suggestions import near_names
from corral.frontend.gateway.ports import RouteSource
from corral.frontend.gateway.targets import Endpoint, ServedModel
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

LOOK_EVERY_S = 0.5
LOOK_WITHIN_S = 10.0


class RouteTable:
    def __init__(self, source: RouteSource, *, make_target: Callable[[ServedModel, RouteReplica], Endpoint]) -> None:
        self._source = source
        self._make_target = make_target
        self.by_name: dict[str, ServedModel] = {}
        self._models: dict[str, ServedModel] = {}
        self._poked = asyncio.Event()
        self._changed = asyncio.Event()
        self._failing = False
        self._looking = asyncio.Lock()
        self._looks = self._answered = 0
        self.version = -1
        self.on_change: Callable[[], None] = lambda: None

    def find(self, name: str) -> ServedModel | None:
        """By its name or an alias."""
        return self.by_name.get(name)

    def models(self) -> Iterable[ServedModel]:
        return self._models.values()

    def targets(self) -> Iterable[Endpoint]:
        return (target for served in self._models.values() for target in served.targets)

    def near(self, name: str, *, allowed: frozenset[str] | None) -> list[str]:
        known = [name for name, served in self.by_name.items() if allowed is None or served.name in allowed]
        return near_names(name, known)

    def notify(self) -> None:
        self._poked.set()

    async def wait_for_change(self) -> None:
        await self._changed.wait()

    def apply(self, snapshot: RouteSnapshot) -> None:
        """What is not in the snapshot gets no more traffic from the next pick on; open requests go on."""
        kept = {_identity(target.replica): target for target in self.targets()}
        models: dict[str, ServedModel] = {}
        for route in snapshot.routes:
            served = self._models.get(route.model) or ServedModel(route)
            served.follow(route)
            served.targets = []
            for replica in route.replicas:
                target = kept.pop(_identity(replica), None) or self._make_target(served, replica)
                target.replica = replica
                served.targets.append(target)
            models[route.model] = served
        for name, served in self._models.items():
            if name not in models:
                served.targets = []
        for target in kept.values():
            target.link.close()
        self._models = models
        aliases = {alias: served for served in models.values() for alias in served.route.aliases}
        self.by_name = {**aliases, **models}
        self.version = snapshot.version
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()

    async def follow(self) -> None:
        while True:
            await wait_or_timeout(self._poked, within_s=LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        """A store that does not answer changes nothing: replicas serve on."""
        try:
            await self.catch_up()
        except CorralError as error:
            if not self._failing:
                log.warning("routes.look_failed", error=str(error))
            self._failing = True
            await asyncio.sleep(LOOK_EVERY_S)
        else:
            self._failing = False

    async def catch_up(self) -> None:
        """What was true when this was called is known when it returns; those who ask meanwhile share one look.

        One at a time, or what was read earlier could be applied later."""
        before = self._looks
        try:
            async with asyncio.timeout(LOOK_WITHIN_S), self._looking:
                if self._answered > before:
                    return
                self._looks += 1
                if await self._source.read_version() != self.version:
                    self.apply(await self._source.read_routes())
                    log.info("routes.changed", version=self.version, models=len(self._models))
                self._answered = self._looks
        except TimeoutError:
            raise Unavailable(f"the store did not tell the routes within {LOOK_WITHIN_S:g} s") from None


def _identity(replica: RouteReplica) -> tuple[object, ...]:
    """Equal for one and the same process with the same limits. It may come to serve another revision as it is."""
    return (
        replica.id, replica.address, replica.protocol, replica.token, replica.generation, replica.capacity,
        replica.node_name,
    )  # fmt: skip
