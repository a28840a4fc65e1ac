"""Replicas while people change what they are compared with."""

import asyncio
from itertools import count
from typing import TypeVar

import pytest

from bus.conftest import Connect
from controller.loads.test_coordinator import make_replication
from corral.store.engine.database import AfterMigration, Body, Database
from corral.store.stores import Stores
from harness.reconcile import make_runtime
from harness.waiting import wait_until_async
from store.serving.test_replicas import IDS, TINY, add_nodes, make_node, serve

T = TypeVar("T")


class EditedMeanwhile:
    """A database in which somebody changes a model's description after every read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._editor = Stores(database, IDS)
        self._numbers = count()
        self.edits = 0

    @property
    def dialect(self) -> str:
        return self._database.dialect

    @property
    def location(self) -> str:
        return self._database.location

    async def read(self, body: Body[T]) -> T:
        found = await self._database.read(body)
        await self._editor.models.save(TINY + f"description: number {next(self._numbers)}\n", "ann")
        self.edits += 1
        return found

    async def read_large(self, body: Body[T]) -> T:
        return await self.read(body)

    async def write(self, body: Body[T]) -> T:
        return await self._database.write(body)

    async def migrate(self, then: AfterMigration | None = None) -> None:
        await self._database.migrate(then)

    async def close(self) -> None:
        await self._database.close()


@pytest.mark.processes
async def test_an_edit_that_needs_no_reload_replaces_no_replica_whenever_it_comes(
    stores: Stores, connect: Connect
) -> None:
    await add_nodes(stores, make_node("a"))
    served = await serve(stores)
    edited, runtime = EditedMeanwhile(stores.database), make_runtime(stores, "f1")
    loop = make_replication(Stores(edited, IDS), await connect(), runtime).controller.loop
    succeeded = runtime.metrics.runs.child("replicas", "succeeded")

    async def ran_twice() -> bool:
        loop.notify()
        return succeeded.value >= 2

    running = asyncio.create_task(loop.run())
    await wait_until_async(ran_twice, what="it ran twice")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert edited.edits > 4
    assert await stores.load_jobs.read_all() == []
    assert [row.id for row in await stores.replicas.read_of_model("tiny")] == [served.id]
