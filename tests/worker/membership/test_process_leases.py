"""What is noted of leases, on a real disk."""

import asyncio
from pathlib import Path
from typing import cast

from structlog.testing import capture_logs

from corral.core.processes.leases import ProcessLeases
from corral.core.processes.process import ProcessKey
from corral.system import SystemClock, SystemDisk
from corral.worker.membership.process_leases import ProcessLeaseEnforcer
from corral.worker.processes.supervisor import Supervisor


def opened(path: Path) -> ProcessLeaseEnforcer:
    """No process is ended here, so nobody is needed who could."""
    return ProcessLeaseEnforcer(path, cast("Supervisor", None), disk=SystemDisk(), clock=SystemClock())


async def test_a_heartbeat_and_a_question_answered_at_once_leave_the_newer_lease_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "leases.json"
    leases = opened(path)
    for turn in range(20):
        asked = range(turn * 10, turn * 10 + 10)
        with capture_logs() as logs:
            await asyncio.gather(*(leases.grant({"m#0": float(asked_s)}, {}, asked_s=asked_s) for asked_s in asked))
        assert logs == []
        newest = ProcessLeases(asked_s=asked[-1], lengths_s={ProcessKey("m#0"): float(asked[-1])})
        assert opened(path)._leases == newest
