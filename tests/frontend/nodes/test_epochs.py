"""Health on the real bus: only the process that is registered now can confirm it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from corral.bus.client import BusMessage, connect_bus
from harness.programs import call


class Node:
    """Sends heartbeats over HTTP, and answers on the bus as a given process."""

    def __init__(self, frontend: Any, name: str, *, instance: str | None) -> None:
        self.frontend, self.name = frontend, name
        self.key = f"{name:e<43}"
        self.answers_as: int | None = None
        self.answered = 0
        self.register(instance)

    def register(self, instance: str | None) -> None:
        self.instance = instance
        claim = {"node_key": self.key, "instance": instance} if instance else None
        reply = self.frontend.register(name=self.name, corral=claim)
        assert reply.status == 201, reply.body
        self.id = reply.json()["id"]

    def beat(self) -> None:
        body = {"corral": {"instance": self.instance}} if self.instance else {}
        bearer = self.key if self.instance else "test-registration-token"
        assert call("POST", f"{self.frontend.url}/api/node/{self.id}/heartbeat", key=bearer, body=body).status == 200

    async def running(self, _message: BusMessage) -> bytes:
        self.answered += 1
        return json.dumps({"models": [], **({"epoch": self.answers_as} if self.answers_as else {})}).encode()

    @asynccontextmanager
    async def on_the_bus(self) -> AsyncIterator[None]:
        nats = self.frontend.nats
        async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.test")) as bus:
            await bus.serve(f"nodes.{self.id}.models.running", self.running, concurrency=4)
            yield

    async def until(self, status: str) -> None:
        async with asyncio.timeout(60):
            while self.status() != status:
                await asyncio.to_thread(self.beat)
                await asyncio.sleep(0.1)

    async def after_answers(self, count: int) -> str:
        """Its status when the health pass has heard so many more answers."""
        enough = self.answered + count
        async with asyncio.timeout(60):
            while self.answered < enough:
                await asyncio.to_thread(self.beat)
                await asyncio.sleep(0.1)
        return self.status()

    def status(self) -> str:
        status: str = self.frontend.admin.nodes()[self.name]["status"]
        return status


async def test_an_earlier_process_cannot_prove_the_one_that_is_registered_now(open_frontend: Any) -> None:
    node = Node(open_frontend, "restarted", instance="first")
    async with node.on_the_bus():
        node.answers_as = 1
        await node.until("healthy")
        node.register("second")
        assert await node.after_answers(4) == "unhealthy"
        node.answers_as = 2
        await node.until("healthy")


async def test_an_answer_without_an_epoch_proves_only_a_worker_that_has_none(open_frontend: Any) -> None:
    localai = Node(open_frontend, "localai", instance=None)
    async with localai.on_the_bus():
        await localai.until("healthy")
    ours = Node(open_frontend, "silent-about-it", instance="one")
    async with ours.on_the_bus():
        assert await ours.after_answers(4) == "unhealthy"
