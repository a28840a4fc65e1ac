"""Where processes are reached that were started again, or whose worker was: asked of their nodes, since tokens travel
only in answers. Beside the look, so that a node that does not answer delays neither repairs nor other nodes."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from corral.bus.messages import NodeReport
from corral.core.errors import CorralError
from corral.core.nodes.observed import ProcessStatus
from corral.store.serving.replicas import ReplicaStore
from corral.system.loops import keep_running, wait_or_timeout

log = structlog.get_logger()

LOOK_EVERY_S = 2.0
ASK_AT_ONCE = 32


class EndpointRefresher:
    def __init__(
        self,
        replicas: ReplicaStore,
        *,
        ask_report: Callable[[str], Awaitable[NodeReport]],
        is_ours: Callable[[], bool],
        hint: Callable[[], Awaitable[None]],
    ) -> None:
        """`is_ours`: whether this frontend is the one that asks."""
        self._replicas, self._ask_report, self._is_ours, self._hint = replicas, ask_report, is_ours, hint
        self._asked: set[str] = set()
        self._poked = asyncio.Event()

    def notify(self) -> None:
        self._poked.set()

    async def run(self) -> None:
        """A look that fails is made again; the questions under way go on."""
        async with asyncio.TaskGroup() as tasks:
            await keep_running("looks for restarted processes", lambda: self._look(tasks))

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            if self._is_ours():
                for node_id in await self._replicas.read_unlearned():
                    if node_id not in self._asked and len(self._asked) < ASK_AT_ONCE:
                        self._asked.add(node_id)
                        tasks.create_task(self._learn(node_id), name=f"learn {node_id}")
            await wait_or_timeout(self._poked, within_s=LOOK_EVERY_S)

    async def _learn(self, node_id: str) -> None:
        try:
            await self._learn_of(node_id)
        except CorralError as error:  # the next look finds it again
            log.warning("replicas.not_learned", node=node_id, error=str(error))
        except Exception:
            log.exception("replicas.learning_crashed", node=node_id)
        finally:
            self._asked.discard(node_id)

    async def _learn_of(self, node_id: str) -> None:
        rows = {row.process_key: row for row in await self._replicas.read_of_node(node_id)}
        report = await self._ask_report(node_id)
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
            await self._hint()
