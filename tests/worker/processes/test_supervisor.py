import asyncio

from corral.core.processes import Ready
from tests.worker.processes.conftest import Bench, server


async def test_a_process_is_started_ready_and_stopped(any_bench: Bench) -> None:
    async with any_bench.supervisor() as supervisor:
        running = await supervisor.start(server())
        assert [type(view.state) for view in supervisor.list()] == [Ready]
        assert supervisor.running(running.spec.key) == running
        assert await supervisor.stop(running.spec.key, reason="not needed")
        assert supervisor.list() == ()
        assert any_bench.ports is not None
        assert any_bench.ports.in_use == {}
    assert any_bench.markers() == []
