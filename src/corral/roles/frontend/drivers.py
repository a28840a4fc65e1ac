"""Wires the driver for LocalAI's gRPC backends and the file servers of workers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corral.bus.messages import NodeReport
from corral.core.errors import Unavailable
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.drivers.localai_grpc import LocalAiGrpc
from corral.store.stores import Stores
from corral.system import Clock, Ids
from corral.system.resolve_host import check_reach
from corral.system.worker_files import FileServer, WorkerFiles

REMEMBER_S = 30.0


@dataclass(frozen=True, slots=True)
class _Known:
    server: FileServer
    until_s: float


class DriversWiring:
    def __init__(
        self,
        stores: Stores,
        *,
        request_report: Callable[[str], Awaitable[NodeReport]],
        registration_token: str,
        changed: Callable[[], Awaitable[None]],
        clock: Clock,
        ids: Ids,
    ) -> None:
        """`registration_token` is the only credential of backends and file servers of LocalAI workers."""
        self._stores = stores
        self._request_report = request_report
        self._registration_token = registration_token
        self._changed = changed
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._wrong: asyncio.Queue[tuple[str, str]] = asyncio.Queue(maxsize=256)
        self._files = WorkerFiles(self.find_server, ids=ids)
        self.driver = LocalAiGrpc(
            stores.models,
            clock=clock,
            ids=ids,
            shared_token=registration_token,
            files=self._files,
            on_wrong_process=self._on_wrong_process,
        )
        self.loops = {"wrong processes": self._stop_wrong}

    async def close(self) -> None:
        await self.driver.close()

    async def find_server(self, node_id: str) -> FileServer:
        known = self._known.get(node_id)
        if known is not None and known.until_s > self._clock.monotonic_s():
            return known.server
        node = await self._stores.nodes.read_one(node_id)
        if not node.http_address:
            raise Unavailable(f"node {node.name} did not report the address of its file server")
        await check_reach(node.http_address, source_address=node.registered_from, what=f"file server of {node.name}")
        token = (await self._request_report(node_id)).http_token or self._registration_token
        server = FileServer(f"http://{node.http_address}", token)
        self._known[node_id] = _Known(server, self._clock.monotonic_s() + REMEMBER_S)
        return server

    def _on_wrong_process(self, replica: RouteReplica, reason: str) -> None:
        if not self._wrong.full():
            self._wrong.put_nowait((replica.id, reason))

    async def _stop_wrong(self) -> None:
        """Another process has the address of the replica. It gets no more requests, and is stopped if it is ours."""
        replica_id, reason = await self._wrong.get()
        await self._stores.replicas.request_stop([replica_id], why=reason)
        await self._changed()
