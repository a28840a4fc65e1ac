"""The traffic of all frontends: this one publishes its own, receives that of the others, and adds them up."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from corral.bus.messages import TrafficReport
from corral.core.nodes.history import MemoryUse, NodeHistory, NodeMinute, TrafficShare, shares_between
from corral.core.nodes.traffic_history import TrafficHistory, TrafficSample, sample_between
from corral.frontend.gateway.loads import ModelLoading
from corral.frontend.gateway.metrics import GatewayMetrics
from corral.system import Clock
from corral.telemetry.metrics import SECONDS

PUBLISH_EVERY_S = 5.0


def _is_failure(status: str) -> bool:
    """Whether the cluster failed, not the client."""
    return status.startswith("5")


class FleetTraffic:
    def __init__(self, metrics: GatewayMetrics, fold: Callable[[], None], *, frontend: str, clock: Clock) -> None:
        """`fold`: counts what is recorded, so that the metrics are current."""
        self._metrics = metrics
        self._fold = fold
        self._frontend = frontend
        self._clock = clock
        self._previous = TrafficSample(first_byte=(0,) * (len(SECONDS) + 1))
        self._previous_nodes: dict[str, TrafficShare] = {}
        self._traffic = TrafficHistory(now_s=clock.monotonic_s())
        self._history = NodeHistory(now_s=clock.monotonic_s())

    async def keep_publishing(
        self, publish: Callable[[TrafficReport], Awaitable[None]], *, every_s: float = PUBLISH_EVERY_S
    ) -> None:
        while True:
            await asyncio.sleep(every_s)
            before, self._previous = self._previous, self._read_total()
            sample = sample_between(before, self._previous)
            nodes_before, self._previous_nodes = self._previous_nodes, self._read_node_totals()
            nodes = shares_between(nodes_before, self._previous_nodes)
            if sample.requests:
                self._add(sample, nodes)
                await publish(
                    TrafficReport(
                        frontend=self._frontend,
                        requests=sample.requests,
                        failed=sample.failed,
                        tokens_in=sample.tokens_in,
                        tokens_out=sample.tokens_out,
                        first_byte=sample.first_byte,
                        nodes=nodes,
                    )
                )

    def receive(self, message: TrafficReport) -> None:
        if message.frontend == self._frontend or len(message.first_byte) not in (0, len(SECONDS) + 1):
            return
        sample = TrafficSample(
            requests=message.requests,
            failed=message.failed,
            tokens_in=message.tokens_in,
            tokens_out=message.tokens_out,
            first_byte=message.first_byte,
        )
        self._add(sample, message.nodes)

    def _add(self, sample: TrafficSample, nodes: Mapping[str, TrafficShare]) -> None:
        now_s = self._clock.monotonic_s()
        self._traffic.add(sample, now_s=now_s)
        self._history.add(nodes, now_s=now_s)

    def record_memory(self, uses: Mapping[str, MemoryUse]) -> None:
        """`uses`: the memory in use now, by node name."""
        self._history.note_memory(uses, now_s=self._clock.monotonic_s())

    def read(self) -> list[tuple[float, TrafficSample]]:
        return self._traffic.read(now_s=self._clock.monotonic_s())

    def read_node(self, name: str) -> list[NodeMinute]:
        return self._history.read(name, now_s=self._clock.monotonic_s())

    def _read_total(self) -> TrafficSample:
        self._fold()
        total = TrafficSample()
        for (_, _, status), requests in self._metrics.requests.children():
            count = int(requests.value)
            total += TrafficSample(requests=count, failed=count if _is_failure(status) else 0)
        for _, broken in self._metrics.broken.children():
            total += TrafficSample(failed=int(broken.value))
        for (status, code), rejections in self._metrics.rejections.children():
            asked_to_wait = code == ModelLoading.code  # the client retries
            count = int(rejections.value) if _is_failure(status) and not asked_to_wait else 0
            total += TrafficSample(requests=count, failed=count)
        for (_, _, direction), tokens in self._metrics.tokens.children():
            count = int(tokens.value)
            total += TrafficSample(tokens_in=count) if direction == "in" else TrafficSample(tokens_out=count)
        for _, times in self._metrics.first_byte.children():
            total += TrafficSample(first_byte=times.counts)
        return total + TrafficSample(first_byte=(0,) * (len(SECONDS) + 1))

    def _read_node_totals(self) -> dict[str, TrafficShare]:
        requests: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        busy_s: dict[str, float] = {}
        for (_, node, status), counter in self._metrics.requests.children():
            requests[node] += int(counter.value)
            failed[node] += int(counter.value) if _is_failure(status) else 0
        for (_, node), broken in self._metrics.broken.children():
            failed[node] += int(broken.value)
        for (_, node), times in self._metrics.latency.children():
            busy_s[node] = busy_s.get(node, 0.0) + times.sum_s
        return {
            node: TrafficShare(requests=count, failed=failed[node], busy_s=busy_s.get(node, 0.0))
            for node, count in requests.items()
        }
