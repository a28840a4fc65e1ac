"""The whole truth about this node, told on connect, on change and with every heartbeat."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

import structlog

from corral.bus.client import Bus
from corral.bus.messages import NodeReport, ReportedProcess, encode
from corral.bus.subjects import REPORT, node_subject
from corral.core.errors import CorralError
from corral.core.processes.process import (
    BackingOff,
    Failed,
    ProcessKey,
    ProcessStarting,
    ProcessStopped,
    ProcessView,
    Ready,
    Stopping,
    TreeUsage,
)
from corral.worker.backends.backends import Backends
from corral.worker.processes.supervisor import Supervisor

log = structlog.get_logger()

REASON_MOST = 4000
SETTLE_S = 0.05
"""Several things change together; one report tells them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReporting:
    """Who reports: settled anew at each join."""

    node: str
    instance: str
    epoch: int
    advertise: str
    http_token: str = field(repr=False)
    blob_token: str = field(repr=False)


class Reporter:
    def __init__(self, backends: Backends, supervisor: Supervisor, news: asyncio.Event) -> None:
        """`news` is set by whoever changes something."""
        self._backends, self._supervisor, self._news = backends, supervisor, news
        self._usage: Mapping[ProcessKey, TreeUsage] = {}
        self._sequence = 0

    def build(self, who: NodeReporting, *, with_secrets: bool) -> NodeReport:
        """From memory. Secrets only for whoever asked, never for all who listen."""
        self._sequence += 1
        processes = [self._process(view, who, with_secrets) for view in self._supervisor.list()]
        return NodeReport(
            node=who.node,
            instance=who.instance,
            epoch=who.epoch,
            sequence=self._sequence,
            backends=self._backends.listed(),
            processes=processes,
            applied=self._backends.applied(),
            http_token=who.http_token if with_secrets else None,
            blob_token=who.blob_token if with_secrets else None,
        )

    async def sample(self) -> None:
        self._usage = await self._supervisor.sample()

    async def publish(self, bus: Bus, who: NodeReporting) -> None:
        try:
            await bus.publish(node_subject(who.node, REPORT), encode(self.build(who, with_secrets=False)))
        except CorralError as error:  # the next heartbeat brings another, and whoever must know asks
            log.debug("report.lost", error=str(error))

    async def publish_always(self, bus: Bus, who: NodeReporting, *, every_s: float) -> None:
        """On connect, on change, and at least every `every_s`: with every message of an hour lost, the next one
        tells it all."""
        self._news.set()  # the first one tells that we are connected

        async def again() -> None:
            self._news.set()

        bus.on_reconnect(again)
        loop = asyncio.get_running_loop()
        sampled_s = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._news.wait()
            await asyncio.sleep(SETTLE_S)
            self._news.clear()
            if loop.time() - sampled_s >= every_s:
                sampled_s = loop.time()
                await self.sample()
            await self.publish(bus, who)

    def _process(self, view: ProcessView, who: NodeReporting, with_secrets: bool) -> ReportedProcess:
        usage = self._usage.get(view.key)
        running = self._supervisor.running(view.key)
        labels = view.spec.labels
        state, reason = _state(view)
        return ReportedProcess(
            process_key=view.key,
            model_id=labels.get("model", ""),
            replica_index=int(labels.get("replica", "0")),
            backend=view.spec.backend,
            digest=view.spec.version_digest,
            protocol=labels.get("protocol", ""),
            state=state,
            reason=reason[:REASON_MOST],
            version=self._backends.version_text(view.spec.backend, view.spec.version_digest),
            generation=view.spec.generation,
            pid=view.pid,
            port=view.port,
            address=f"{who.advertise}:{view.port}" if running is not None else None,
            restarts=view.restarts,
            memory_bytes=usage.memory_bytes if usage is not None else None,
            cpu_s=round(usage.cpu_s, 2) if usage is not None else None,
            gpu_memory_bytes=usage.gpu_memory_bytes if usage is not None else None,
            token=running.token if running is not None and with_secrets else None,
        )


def _state(view: ProcessView) -> tuple[str, str]:
    match view.state:
        case ProcessStarting():
            return "starting", ""
        case Ready():
            return "ready", ""
        case BackingOff(last=last, delay_s=delay_s):
            return "backing_off", f"{last.describe()}; started again within {delay_s:.1f} s"
        case Stopping(reason=reason):
            return "stopping", reason
        case ProcessStopped(reason=reason):
            return "stopped", reason
        case Failed(reason=reason):
            return "failed", reason
        case state:
            assert_never(state)
