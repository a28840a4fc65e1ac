"""This frontend's answers, told to the others; theirs, heard; all of them together, shown."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from corral.bus.messages import TrafficReport
from corral.core.nodes.history import MemoryUse, NodeHistory, NodeMinute, TrafficShare, shares_between
from corral.core.nodes.traffic_history import TrafficHistory, TrafficSample, sample_between
from corral.frontend.gateway.loads import ModelLoading
from corral.frontend.gateway.metrics import Meters
from corral.system import Clock
from corral.telemetry.metrics import SECONDS

TELL_EVERY_S = 5.0


def _is_ours(status: str) -> bool:
    """A failure of ours, not of whoever asked."""
    return status.startswith("5")


class FleetPulse:
    def __init__(self, meters: Meters, fold: Callable[[], None], *, frontend: str, clock: Clock) -> None:
        """`fold`: brings the meters up to date."""
        self._meters = meters
        self._fold = fold
        self._frontend = frontend
        self._clock = clock
        self._read = TrafficSample(first_byte=(0,) * (len(SECONDS) + 1))
        self._read_nodes: dict[str, TrafficShare] = {}
        self._pulse = TrafficHistory(now_s=clock.monotonic_s())
        self._history = NodeHistory(now_s=clock.monotonic_s())

    async def keep_telling(self, publish: Callable[[TrafficReport], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            before, self._read = self._read, self._look()
            beat = sample_between(before, self._read)
            nodes_before, self._read_nodes = self._read_nodes, self._look_at_nodes()
            nodes = shares_between(nodes_before, self._read_nodes)
            if beat.requests:
                self._take(beat, nodes)
                await publish(
                    TrafficReport(
                        frontend=self._frontend,
                        requests=beat.requests,
                        failed=beat.failed,
                        tokens_in=beat.tokens_in,
                        tokens_out=beat.tokens_out,
                        first_byte=beat.first_byte,
                        nodes=nodes,
                    )
                )

    def hear(self, told: TrafficReport) -> None:
        if told.frontend == self._frontend or len(told.first_byte) not in (0, len(SECONDS) + 1):
            return
        beat = TrafficSample(
            requests=told.requests,
            failed=told.failed,
            tokens_in=told.tokens_in,
            tokens_out=told.tokens_out,
            first_byte=told.first_byte,
        )
        self._take(beat, told.nodes)

    def _take(self, beat: TrafficSample, nodes: Mapping[str, TrafficShare]) -> None:
        now_s = self._clock.monotonic_s()
        self._pulse.add(beat, now_s=now_s)
        self._history.add(nodes, now_s=now_s)

    def note_memory(self, uses: Mapping[str, MemoryUse]) -> None:
        """By node name, as it is now."""
        self._history.note_memory(uses, now_s=self._clock.monotonic_s())

    def read(self) -> list[tuple[float, TrafficSample]]:
        return self._pulse.read(now_s=self._clock.monotonic_s())

    def read_node(self, name: str) -> list[NodeMinute]:
        return self._history.read(name, now_s=self._clock.monotonic_s())

    def _look(self) -> TrafficSample:
        self._fold()
        total = TrafficSample()
        for (_, _, status), requests in self._meters.requests.children():
            count = int(requests.value)
            total += TrafficSample(requests=count, failed=count if _is_ours(status) else 0)
        for _, broken in self._meters.broken.children():
            total += TrafficSample(failed=int(broken.value))
        for (status, code), refusals in self._meters.refusals.children():
            asked_to_wait = code == ModelLoading.code  # and comes again
            count = int(refusals.value) if _is_ours(status) and not asked_to_wait else 0
            total += TrafficSample(requests=count, failed=count)
        for (_, _, direction), tokens in self._meters.tokens.children():
            count = int(tokens.value)
            total += TrafficSample(tokens_in=count) if direction == "in" else TrafficSample(tokens_out=count)
        for _, times in self._meters.first_byte.children():
            total += TrafficSample(first_byte=times.counts)
        return total + TrafficSample(first_byte=(0,) * (len(SECONDS) + 1))

    def _look_at_nodes(self) -> dict[str, TrafficShare]:
        requests: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        busy_s: dict[str, float] = {}
        for (_, node, status), counter in self._meters.requests.children():
            requests[node] += int(counter.value)
            failed[node] += int(counter.value) if _is_ours(status) else 0
        for (_, node), broken in self._meters.broken.children():
            failed[node] += int(broken.value)
        for (_, node), times in self._meters.latency.children():
            busy_s[node] = busy_s.get(node, 0.0) + times.sum_s
        return {
            node: TrafficShare(requests=count, failed=failed[node], busy_s=busy_s.get(node, 0.0))
            for node, count in requests.items()
        }
