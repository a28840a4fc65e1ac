"""Requests of a node that drops packets go to other nodes within a bounded time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.gateway import KEY
from harness.machine_speed import Yardstick
from harness.namespaces import TwoMachines
from harness.waiting import wait_until

ROOT = Path(__file__).parents[3]
LANE = ROOT / "benchmarks" / "serving_parts" / "corral_gateway.py"
HARNESS = ROOT / "tests" / "harness"
PORT, LANE_PORT = 8080, 8081
# What a connection that was open already needs to be known as dead, and then one attempt to open another.
MOST_S = 16.0


@pytest.fixture
def machines() -> Iterator[TwoMachines]:
    two = TwoMachines()
    yield two
    two.remove()


@pytest.mark.processes
def test_requests_leave_a_node_that_drops_packets(machines: TwoMachines) -> None:
    with ExitStack() as running:

        def start(machine: str, *command: str) -> None:
            environment = {**os.environ, "TEST_TOKEN": "process-token"}
            process = subprocess.Popen([*machines.inside(machine), sys.executable, *command], env=environment)
            running.callback(process.wait, 10)
            running.callback(process.kill)

        def ask(count: int) -> list[float]:
            program = (sys.executable, str(HARNESS / "ask_at_once.py"))
            answers = json.loads(machines.run("first", *program, "127.0.0.1", str(LANE_PORT), KEY, str(count)))
            assert [status for status, _ in answers] == [200] * count
            return sorted(seconds for _, seconds in answers)

        replicas = []
        for name, address in machines.addresses.items():
            start(name, str(HARNESS / "openai_upstream.py"), address, str(PORT))
            replicas.append(f"{address}:{PORT}")
        start("first", str(LANE), str(LANE_PORT), ",".join(replicas), KEY, "--model", "m")
        wait_until(lambda: ask(8), what="both machines serve", within_s=60)

        machines.cut("second", "INPUT", "-i", "cable")
        with Yardstick() as yardstick:
            answered_s, again_s = ask(12), ask(12)
        assert answered_s[-1] < yardstick.allows_s(MOST_S)
        # It is known by now: only one request at a time may still try.
        assert again_s[8] < yardstick.allows_s(1)
