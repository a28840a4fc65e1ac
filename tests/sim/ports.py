"""What production code touches the world through, simulated: clock, chance, store, bus."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corral.bus.client import Handler
from corral.core.errors import NoResponders, OutcomeUnknown, Unavailable
from corral.store.engine.database import AfterMigration, Body
from corral.store.engine.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from sim.world import World

T = TypeVar("T")
EPOCH_MS = 1_800_000_000_000


class SimClock:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def since_boot_s(self) -> float:
        return self._loop.time()


class SimIds:
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def token(self) -> str:
        return f"{self._random.getrandbits(256):064x}"

    def seed(self) -> bytes:
        return self._random.randbytes(32)

    def draw(self) -> float:
        return self._random.random()


class SimDatabase(SqliteDatabase):
    """The real one, without its thread and its waits for the disk. Every commit is looked at."""

    def __init__(self, path: Path, clock: SimClock, ids: SimIds, committed: Callable[[], None]) -> None:
        super().__init__(path, clock=clock, ids=ids)
        self._writer.execute("PRAGMA synchronous=OFF")
        self._committed = committed

    async def read_large(self, body: Body[T]) -> T:
        return await self.read(body)

    async def write(self, body: Body[T]) -> T:
        result = self._write_once(body)
        self._committed()
        return result

    def peek(self, sql: str) -> list[Any]:
        return self._reader.execute(sql).fetchall()


class HostDatabase:
    """A frontend's way to the store, which may be slow, cut, or lost after the commit."""

    dialect = "sqlite"
    location = "the simulated store"

    def __init__(self, world: "World", host: str) -> None:
        self._world, self._host = world, host

    async def read(self, body: Body[T]) -> T:
        await self._reach()
        return await self._world.database.read(body)

    async def read_large(self, body: Body[T]) -> T:
        return await self.read(body)

    async def write(self, body: Body[T]) -> T:
        await self._reach()
        result = await self._world.database.write(body)
        if self._world.chaos and self._world.draw("store") < 0.01:
            raise OutcomeUnknown("the connection to the store was lost after the commit")
        return result

    async def _reach(self) -> None:
        world = self._world
        await asyncio.sleep(world.draw("store") * 0.01)
        if self._host not in world.frontends:
            raise Unavailable("this host is dead")
        if world.store_away:
            raise Unavailable("the store cannot be reached")

    async def migrate(self, then: AfterMigration | None = None) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class HostBus:
    """A frontend's way to the bus."""

    connected = True

    def __init__(self, world: "World", host: str) -> None:
        self._world, self._host = world, host
        self.handlers: list[tuple[str, Handler]] = []

    async def serve(self, subject: str, handler: Handler, *, concurrency: int) -> None:
        self.handlers.append((subject, handler))

    def on_reconnect(self, listener: Callable[[], Awaitable[None]]) -> None:
        """This link never breaks; machines' links do."""

    async def publish(self, subject: str, data: bytes) -> None:
        self._world.publish(subject, data)

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes:
        world = self._world
        _, node_id, verb = subject.split(".", 2)
        worker = world.find_worker(node_id)
        await asyncio.sleep(0.001 + world.draw("net") * 0.05)
        if self._host not in world.frontends:
            raise Unavailable("this host is dead")
        if worker is None or (not worker.alive and worker.linked):
            raise NoResponders(f"no subscriber on {subject}")
        lost = world.chaos and world.draw("net") < 0.02
        try:
            async with asyncio.timeout(within_s):
                if not worker.linked or lost:
                    await asyncio.Event().wait()
                answer = await worker.answer(verb, data)
                if world.chaos and world.draw("net") < 0.02:
                    await asyncio.Event().wait()  # the answer is what is lost
                return answer
        except TimeoutError:
            raise OutcomeUnknown(f"no answer on {subject} within {within_s:g} s") from None


def find_handlers(handlers: list[tuple[str, Handler]], subject: str) -> list[Handler]:
    tokens = subject.split(".")
    return [handler for pattern, handler in handlers if _fits(pattern.split("."), tokens)]


def _fits(wanted: list[str], tokens: list[str]) -> bool:
    return len(wanted) == len(tokens) and all(one in ("*", two) for one, two in zip(wanted, tokens, strict=True))
