"""Wires the driver for LocalAI's gRPC backends and the file servers of workers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from corral.bus.messages import NodeReport
from corral.core.errors import CorralError, Unavailable
from corral.core.replicas.availability import SETTLED_AFTER_MS
from corral.core.replicas.routing import RouteReplica
from corral.frontend.gateway.drivers.localai_grpc import LocalAiGrpc
from corral.store.stores import Stores
from corral.system import Clock, Ids
from corral.system.resolve_host import check_reach
from corral.system.worker_files import FileServer, WorkerFiles

log = structlog.get_logger()

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
        self._gone: dict[str, None] = {}
        """LocalAI nodes with a process that does not answer."""
        self._is_gone = asyncio.Event()
        self._files = WorkerFiles(self.find_server, ids=ids)
        self.driver = LocalAiGrpc(
            stores.models,
            clock=clock,
            ids=ids,
            shared_token=registration_token,
            files=self._files,
            on_wrong_process=self._on_wrong_process,
            on_gone=self._on_gone,
        )
        self.loops = {"wrong processes": self._stop_wrong, "ended processes": self._ask_about_gone}

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

    def _on_gone(self, replica: RouteReplica) -> None:
        """A Corral worker reports it at once when a process ends, a LocalAI worker only when it is asked. Its processes
        have no token of their own."""
        if not replica.token:
            self._gone[replica.node_id] = None
            self._is_gone.set()

    async def _ask_about_gone(self) -> None:
        """Twice, because a report is no evidence about a replica that became ready moments before."""
        await self._is_gone.wait()
        self._is_gone.clear()
        nodes, self._gone = list(self._gone), {}
        for pause_s in (0.0, SETTLED_AFTER_MS / 1000 + 0.5):
            await asyncio.sleep(pause_s)
            for node_id in nodes:
                try:
                    await self._request_report(node_id)
                except CorralError as error:  # it is asked again, as every LocalAI node is
                    log.info("drivers.not_reported", node=node_id, error=str(error))

    async def _stop_wrong(self) -> None:
        """Another process has the address of the replica. It gets no more requests, and is stopped if it is ours."""
        replica_id, reason = await self._wrong.get()
        await self._stores.replicas.request_stop([replica_id], why=reason)
        await self._changed()
