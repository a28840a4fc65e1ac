"""Publishes the complete state of this node on connect, on change and with every heartbeat."""

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
from corral.core.nodes.observed import ProcessStatus
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
from corral.worker.processes.engine_meter import EngineMeter
from corral.worker.processes.supervisor import Supervisor

log = structlog.get_logger()

REASON_MOST = 4000
SETTLE_S = 0.05
"""Merges changes that happen together into one report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReporting:
    """The identity of the reporting worker, set at each join."""

    node: str
    instance: str
    epoch: int
    advertise: str
    http_token: str = field(repr=False)
    blob_token: str = field(repr=False)


class Reporter:
    def __init__(self, backends: Backends, supervisor: Supervisor, meter: EngineMeter, changed: asyncio.Event) -> None:
        """`changed` is set with every change of the state."""
        self._backends, self._supervisor, self._meter, self._changed = backends, supervisor, meter, changed
        self._usage: Mapping[ProcessKey, TreeUsage] = {}
        self._sequence = 0

    def build(self, who: NodeReporting, *, with_secrets: bool) -> NodeReport:
        """From memory. Secrets are included only in replies, never in published reports."""
        self._sequence += 1
        processes = [
            self._process(view, who, with_secrets) for view in self._supervisor.list() if not view.is_smoke_test
        ]
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
        except CorralError as error:  # the next report contains the same; frontends can also request one
            log.debug("report.lost", error=str(error))

    async def publish_always(self, bus: Bus, who: NodeReporting, *, every_s: float) -> None:
        """Publishes on connect, on change, and at least every `every_s`. Each report is complete, so lost ones do not
        matter."""
        self._changed.set()  # the first report announces the connection

        async def report_again() -> None:
            self._changed.set()

        bus.on_reconnect(report_again)
        loop = asyncio.get_running_loop()
        sampled_s = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._changed.wait()
            await asyncio.sleep(SETTLE_S)
            self._changed.clear()
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
            engine=self._meter.capacity(view.key, view.pid),
            token=running.token if running is not None and with_secrets else None,
        )


def _state(view: ProcessView) -> tuple[ProcessStatus, str]:
    match view.state:
        case ProcessStarting():
            return ProcessStatus.STARTING, ""
        case Ready():
            return ProcessStatus.READY, ""
        case BackingOff(last=last, delay_s=delay_s):
            return ProcessStatus.BACKING_OFF, f"{last.describe()}; restarts within {delay_s:.1f} s"
        case Stopping(reason=reason):
            return ProcessStatus.STOPPING, reason
        case ProcessStopped(reason=reason):
            return ProcessStatus.STOPPED, reason
        case Failed(reason=reason):
            return ProcessStatus.FAILED, reason
        case state:
            assert_never(state)
