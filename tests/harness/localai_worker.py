"""A worker of LocalAI's, as far as a frontend can tell, of one of the ages there have been. It tells no progress.

It registers and beats over HTTP, and answers on the bus with the credentials it was given. Its backends are in memory.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

from corral.bus.client import BusMessage, BusOptions, Credentials, connect_bus
from corral.bus.credentials import read_key
from harness.programs import call

BEAT_EVERY_S = 0.5
# Which of the verbs below LocalAI's workers had, by the date of the build.
OLDEST = frozenset({"backend.install", "backend.delete", "backend.list"})
SINCE_MAY_2026 = OLDEST | {"backend.upgrade"}
SINCE_JULY_2026 = SINCE_MAY_2026 | {"models.running"}


class LocalAiWorker:
    def __init__(self, url: str, token: str, bus: str, *, name: str, verbs: Collection[str] = SINCE_JULY_2026) -> None:
        self.name, self.verbs = name, verbs
        self.offered: dict[str, str] = {}
        """What its galleries hold: name to digest."""
        self.installed: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._url, self._token, self._bus = url, token, bus
        body = {"name": name, "address": "127.0.0.1:50051", "http_address": "127.0.0.1:50050", "token": token}
        answer = call("POST", f"{url}/api/node/register", key=token, body=body)
        assert answer.status == 201, answer.body
        self._welcome = answer.json()
        self.id: str = self._welcome["id"]
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)
        self._loop.close()

    async def _run(self) -> None:
        key = read_key("user", self._welcome["nats_user_seed"], setting="test")
        inbox = f"_INBOX.node.{self.id}"
        options = BusOptions(
            servers=(self._bus,),
            name=self.name,
            inbox=inbox,
            inbox_for=lambda _subject: inbox,
            credentials=lambda: Credentials(self._welcome["nats_jwt"], key),
        )
        handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "backend.install": self._install,
            "backend.upgrade": lambda request: self._install({**request, "force": True}),
            "backend.delete": self._delete,
            "backend.list": self._list,
            "models.running": lambda _: {"models": []},
        }
        async with connect_bus(options) as bus:
            for verb, handler in handlers.items():
                if verb not in self.verbs:
                    continue
                await bus.serve(f"nodes.{self.id}.{verb}", self._answering(verb, handler), concurrency=4)
            while not self._over.is_set():
                await asyncio.to_thread(
                    call, "POST", f"{self._url}/api/node/{self.id}/heartbeat", key=self._token, body={}
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_EVERY_S):
                        await self._over.wait()

    def _answering(
        self, verb: str, handler: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Callable[[BusMessage], Awaitable[bytes]]:
        async def handle(message: BusMessage) -> bytes:
            request = json.loads(message.data or b"{}") or {}
            self.asked.append((verb, request))
            return json.dumps(handler(request)).encode()

        return handle

    def _install(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["backend"].rpartition("@")[2]
        if name not in self.offered:
            return {"success": False, "error": f"no backend found with name {name!r}"}
        if name not in self.installed or request.get("force"):
            self.installed[name] = self.offered[name]
        return {"success": True, "address": "127.0.0.1:50051"}

    def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.installed.pop(request["backend"], None) is None:
            return {"success": False, "error": "backend not found"}
        return {"success": True}

    def _list(self, _request: dict[str, Any]) -> dict[str, Any]:
        return {
            "backends": [
                {"name": name, "is_system": False, "is_meta": False, "digest": digest}
                for name, digest in self.installed.items()
            ]
        }
