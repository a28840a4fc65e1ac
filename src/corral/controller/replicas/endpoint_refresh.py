"""Reads the new address and token of processes that were restarted, or whose worker was. Only replies carry tokens, so
the nodes are asked. It runs beside the replica controller, so that a node that does not answer delays nothing else."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.bus.messages import NodeReport
from corral.controller.loop import Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.errors import CorralError
from corral.core.nodes.observed import ProcessStatus
from corral.store.serving.replicas import ReplicaStore

log = structlog.get_logger()

EVERY_S = 2.0
ASK_AT_ONCE = 32


class EndpointRefresher:
    def __init__(
        self,
        runtime: ReconcileRuntime,
        replicas: ReplicaStore,
        *,
        request_report: Callable[[str], Awaitable[NodeReport]],
        is_leader: Callable[[], bool],
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        """`is_leader`: whether this frontend is the one that asks."""
        self.loop = Reconciler("endpoints", self._reconcile, runtime, every_s=EVERY_S)
        self._replicas, self._request_report, self._is_leader, self._on_change = (
            replicas,
            request_report,
            is_leader,
            on_change,
        )
        self._asked: set[str] = set()
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Requests to nodes outlive the run that sent them."""
        async with asyncio.TaskGroup() as self._tasks:
            await self.loop.run()

    async def _reconcile(self, _run: ReconcileRun) -> None:
        if not self._is_leader():
            return
        for node_id in await self._replicas.read_nodes_to_refresh():
            if node_id not in self._asked and len(self._asked) < ASK_AT_ONCE:
                self._asked.add(node_id)
                self._tasks.create_task(self._refresh(node_id), name=f"refresh endpoints of {node_id}")

    async def _refresh(self, node_id: str) -> None:
        try:
            await self._refresh_node(node_id)
        except CorralError as error:  # the next run asks again
            log.warning("replicas.endpoints_not_refreshed", node=node_id, error=str(error))
        except Exception:  # a bug for one node must not end the refresh of the others
            log.exception("replicas.endpoint_refresh_crashed", node=node_id)
        finally:
            self._asked.discard(node_id)

    async def _refresh_node(self, node_id: str) -> None:
        rows = {row.process_key: row for row in await self._replicas.read_of_node(node_id)}
        report = await self._request_report(node_id)
        there = [
            process
            for process in report.processes
            if process.process_key in rows and process.state == ProcessStatus.READY
        ]
        for process in there:
            if process.address is not None:
                await self._replicas.note_seen(
                    rows[process.process_key].id,
                    epoch=report.epoch,
                    pid=process.pid,
                    address=process.address,
                    token=process.token,
                )
        if there:
            await self._on_change()
