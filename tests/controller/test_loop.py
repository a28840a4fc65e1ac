"""The contract of the reconcile runtime, under virtual time: when it runs, who leads, what a failure costs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from corral.controller.loop import RELEASE_WITHIN_S, Reconciler, ReconcileRun, ReconcileRuntime
from corral.core.errors import Fenced, Unavailable
from corral.store.engine.leases import Lease
from corral.telemetry.metrics import MetricRegistry, render
from sim.loop import run_virtually
from sim.ports import SimClock

EVERY_S = 10.0
Setup = Callable[..., Reconciler]


class Leases:
    """One lease in memory, by the rules of the store."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.fence = 0
        self.fresh: list[bool] = []
        self.fails: list[Exception] = []
        self.hangs_on_release = False

    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None:
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)
        self.fresh.append(fresh)
        if self.holder not in (None, holder):
            return None
        if self.holder is None or fresh:
            self.fence += 1
        self.holder = holder
        return Lease(name, holder, self.fence)

    async def release(self, lease: Lease) -> None:
        if self.hangs_on_release:
            await asyncio.sleep(3600)
        self.holder = None


class Bench:
    """One reconciler whose runs are noted with their time, and can be made to fail or to take long."""

    def __init__(self, *, leases: Leases | None = None, holder: str = "fe", draw: float = 1.0, **options: Any) -> None:
        self.clock, self.leases, self.registry = SimClock(), leases or Leases(), MetricRegistry()
        self.began_s: list[float] = []
        self.runs: list[ReconcileRun] = []
        self.fails: list[Exception] = []
        self.takes_s = 0.0
        self.again_s: float | None = None
        self.in_run: Callable[[], None] = lambda: None
        self.standbys = self.failures = 0
        self.loop = Reconciler(
            "test",
            self._reconcile,
            ReconcileRuntime(
                holder=holder, leases=self.leases, registry=self.registry, clock=self.clock, draw=lambda: draw
            ),
            every_s=EVERY_S,
            on_standby=self._on_standby,
            on_failure=self._on_failure,
            **options,
        )
        self._task = asyncio.get_running_loop().create_task(self.loop.run())

    def _on_standby(self) -> None:
        self.standbys += 1

    def _on_failure(self) -> None:
        self.failures += 1

    async def _reconcile(self, run: ReconcileRun) -> float | None:
        self.began_s.append(round(self.clock.monotonic_s(), 6))
        self.runs.append(run)
        self.in_run()
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise self.fails.pop(0)
        return self.again_s

    async def until(self, at_s: float) -> None:
        await asyncio.sleep(at_s - self.clock.monotonic_s())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def metric(self, name: str) -> float:
        """The value of one line of `/metrics`."""
        lines = render(self.registry.collect()).splitlines()
        [value] = [line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name]
        return float(value)


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(1, test())


# When it runs


def test_it_runs_at_its_start_and_then_every_so_often() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.until(35)
        assert bench.began_s == [0, 10, 20, 30]
        assert not any(run.notified for run in bench.runs)

    virtually(test)


def test_it_can_wait_before_its_first_run() -> None:
    async def test() -> None:
        bench = Bench(at_start=False)
        await bench.until(15)
        assert bench.began_s == [10]

    virtually(test)


def test_a_notification_causes_a_run_at_once() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.until(3)
        bench.loop.notify()
        await bench.until(14)
        assert bench.began_s == [0, 3, 13], "and the next is due from then on"
        assert [run.notified for run in bench.runs] == [False, True, False]

    virtually(test)


def test_a_notification_during_a_run_causes_another_run() -> None:
    async def test() -> None:
        bench = Bench()
        bench.takes_s = 2.0
        await bench.until(1)
        bench.loop.notify()
        bench.loop.notify()
        await bench.until(9)
        assert bench.began_s == [0, 2], "one for all that came meanwhile"

    virtually(test)


def test_a_run_that_notifies_itself_runs_again() -> None:
    async def test() -> None:
        bench = Bench(min_spacing_s=1.0)
        bench.in_run = bench.loop.notify
        await bench.until(3.5)
        assert bench.began_s == [0, 1, 2, 3]

    virtually(test)


def test_a_burst_of_notifications_keeps_the_spacing() -> None:
    async def test() -> None:
        bench = Bench(min_spacing_s=0.5)
        bench.takes_s = 0.25
        while bench.clock.monotonic_s() < 2:
            bench.loop.notify()
            await asyncio.sleep(0.01)
        assert bench.began_s == [0, 0.75, 1.5], "half a second between the end of one and the start of the next"

    virtually(test)


def test_notifications_are_gathered() -> None:
    async def test() -> None:
        bench = Bench(gather_s=1.0)
        await bench.until(5)
        bench.loop.notify()
        await bench.until(5.9)
        bench.loop.notify()
        await bench.until(12)
        assert bench.began_s == [0, 6]

    virtually(test)


def test_a_run_can_ask_for_the_next_one() -> None:
    async def test() -> None:
        bench = Bench()
        bench.again_s = 0.5
        await bench.until(1.2)
        bench.again_s = None
        await bench.until(9)
        assert bench.began_s == [0, 0.5, 1.0, 1.5]

    virtually(test)


# Failures


def test_a_failed_run_is_retried_at_once_and_then_later_and_later() -> None:
    async def test() -> None:
        bench = Bench()
        bench.fails = [Unavailable("the store restarts")] * 8
        await bench.until(30)
        gaps = [round(later - earlier, 6) for earlier, later in zip(bench.began_s, bench.began_s[1:], strict=False)]
        assert gaps[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
        assert gaps[8] == EVERY_S, "a success ends the back-off"
        assert bench.failures == 8

    virtually(test)


@pytest.mark.parametrize(("draw", "gaps"), [(0.0, [0.05, 0.1, 0.2]), (0.5, [0.075, 0.15, 0.3]), (1.0, [0.1, 0.2, 0.4])])
def test_the_back_off_has_jitter(draw: float, gaps: list[float]) -> None:
    async def test() -> None:
        bench = Bench(draw=draw)
        bench.fails = [Unavailable("the store restarts")] * 3
        await bench.until(5)
        assert [round(b - a, 6) for a, b in zip(bench.began_s, bench.began_s[1:], strict=False)] == gaps

    virtually(test)


def test_an_unexpected_exception_does_not_end_the_loop() -> None:
    async def test() -> None:
        bench = Bench()
        bench.fails = [ZeroDivisionError()] * 12
        await bench.until(400)
        assert bench.began_s[12] - bench.began_s[11] == pytest.approx(30.0), "it backs off further than for an error"
        assert bench.metric('corral_reconcile_runs_total{reconciler="test",outcome="failed"}') == 12

    virtually(test)


def test_a_retry_serves_the_notification_of_the_run_that_failed() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.until(3)
        bench.fails = [Unavailable("the store restarts")]
        bench.loop.notify()
        await bench.until(9)
        assert bench.began_s == [0, 3, 3.1]
        assert [run.notified for run in bench.runs] == [False, True, True]

    virtually(test)


# Leases


async def two_frontends() -> tuple[Bench, Bench]:
    """At second 2; the first is the leader."""
    leases = Leases()
    first = Bench(leases=leases, holder="a", lease_ttl_s=15.0)
    await first.until(1)
    second = Bench(leases=leases, holder="b", lease_ttl_s=15.0)
    await first.until(2)
    return first, second


def test_only_the_leader_runs_and_a_stop_hands_the_lease_over_at_once() -> None:
    async def test() -> None:
        first, second = await two_frontends()
        assert (first.loop.is_leader, second.loop.is_leader) == (True, False)
        assert second.began_s == []
        await first.stop()
        second.loop.notify()
        await second.until(2.5)
        assert second.began_s == [2]
        assert second.runs[0].lease == Lease("test", "b", 2)
        assert not first.loop.is_leader

    virtually(test)


def test_a_frontend_that_loses_its_lease_stops_running_and_is_told_once() -> None:
    async def test() -> None:
        bench = Bench(lease_ttl_s=15.0)
        await bench.until(5)
        bench.leases.holder = "other"
        await bench.until(35)
        assert bench.began_s == [0]
        assert bench.standbys == 1
        bench.leases.holder = None
        await bench.until(45)
        assert bench.began_s == [0, 40], "it leads again when the lease is free"

    virtually(test)


def test_a_write_that_is_fenced_off_ends_the_leadership() -> None:
    async def test() -> None:
        bench = Bench(lease_ttl_s=15.0)
        bench.fails = [Fenced("another frontend has taken over")]
        bench.in_run = lambda: setattr(bench.leases, "holder", "other")
        await bench.until(5)
        assert not bench.loop.is_leader
        assert (bench.standbys, bench.began_s) == (1, [0])

    virtually(test)


def test_only_the_first_request_for_the_lease_ends_that_of_an_earlier_process() -> None:
    async def test() -> None:
        bench = Bench(lease_ttl_s=15.0)
        bench.leases.fails = [Unavailable("the store restarts")]
        await bench.until(15)
        assert bench.leases.fresh == [True, False]
        assert bench.failures == 1

    virtually(test)


def test_a_stop_does_not_wait_for_a_store_that_does_not_answer() -> None:
    async def test() -> None:
        bench = Bench(lease_ttl_s=15.0)
        bench.leases.hangs_on_release = True
        await bench.until(1)
        await bench.stop()
        assert bench.clock.monotonic_s() == 1 + RELEASE_WITHIN_S

    virtually(test)


# Metrics and logs


def test_runs_durations_and_lag_are_measured() -> None:
    async def test() -> None:
        bench = Bench()
        bench.takes_s = 2.0
        await bench.until(0.5)
        bench.loop.notify()
        await bench.until(3)
        bench.fails = [Unavailable("the store restarts")]
        await bench.until(9)
        label = '{reconciler="test"}'
        assert bench.began_s == [0, 2, 4.1]
        assert bench.metric('corral_reconcile_runs_total{reconciler="test",outcome="succeeded"}') == 2
        assert bench.metric('corral_reconcile_runs_total{reconciler="test",outcome="failed"}') == 1
        assert bench.metric(f"corral_reconcile_duration_seconds_count{label}") == 3
        assert bench.metric(f"corral_reconcile_duration_seconds_sum{label}") == pytest.approx(6)
        lag_s = 0 + 1.5 + 3.6  # the second was notified at 0.5; the third retries what was due since then
        assert bench.metric(f"corral_reconcile_lag_seconds_sum{label}") == pytest.approx(lag_s)

    virtually(test)


def test_the_leader_and_the_standbys_are_shown() -> None:
    async def test() -> None:
        first, second = await two_frontends()
        leader = 'corral_reconcile_leader{reconciler="test"}'
        assert (first.metric(leader), second.metric(leader)) == (1, 0)
        assert second.metric('corral_reconcile_runs_total{reconciler="test",outcome="standby"}') == 1

    virtually(test)


def test_log_lines_of_a_run_name_the_reconciler() -> None:
    async def test() -> None:
        bench = Bench()
        names: list[Any] = []
        bench.in_run = lambda: names.append(structlog.contextvars.get_contextvars().get("reconciler"))
        bench.loop.notify()
        await bench.until(1)
        assert names
        assert set(names) == {"test"}

    virtually(test)
