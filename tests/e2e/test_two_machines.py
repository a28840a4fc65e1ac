"""Two machines with addresses of their own: what crosses the network, and what happens when it does not."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.namespaces import TwoMachines
from harness.programs import Program
from harness.waiting import wait_until

pytestmark = pytest.mark.netns
PORT, BUS_PORT = 8080, 4222


class Cluster:
    def __init__(self, machines: TwoMachines, directory: Path) -> None:
        self.machines = machines
        self._data = directory / "up"
        self.up = Program(
            "up", "--listen", f"0.0.0.0:{PORT}", "--bus-port", str(BUS_PORT), "--data-dir", str(self._data),
            "--public-url", f"http://{machines.addresses['first']}:{PORT}", "--name", "first", "--auto-approve",
            "--heartbeat-interval", "0.5", "--suspect-after", "3", "--offline-after", "6", "--health-interval", "0.5",
            log=directory / "up.log", inside=machines.inside("first"),
        )  # fmt: skip
        self.up.wait_for_output("Ctrl-C stops everything.", within_s=60)
        joined = json.loads(self.cli("join-command", "--json"))
        self.worker = Program(
            "worker", "--join", joined["url"], "--token", joined["token"], "--name", "second",
            "--data-dir", str(directory / "worker"), log=directory / "worker.log", inside=machines.inside("second"),
        )  # fmt: skip

    def cli(self, *arguments: str) -> str:
        command = (sys.executable, "-m", "corral", *arguments, "--data-dir", str(self._data))
        return self.machines.run("first", *command)

    def node(self, name: str) -> dict[str, Any]:
        return next(node for node in json.loads(self.cli("nodes", "list", "--json")) if node["name"] == name)

    def wait_for_status(self, name: str, status: str) -> dict[str, Any]:
        return wait_until(
            lambda: (n := self.node(name))["status"] == status and n, what=f"{name} is {status}", within_s=40
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    machines = TwoMachines()
    try:
        running = Cluster(machines, tmp_path_factory.mktemp("cluster"))
        yield running
        running.worker.stop()
        running.up.stop()
    finally:
        machines.remove()


def test_a_second_machine_joins_over_the_network_with_the_printed_command(cluster: Cluster) -> None:
    node = cluster.wait_for_status("second", "healthy")
    address = cluster.machines.addresses["second"]
    assert node["http_address"].startswith(f"{address}:")
    # What the frontend was told is where the worker can really be reached from there.
    code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).status)"
    assert cluster.machines.run("first", sys.executable, "-c", code, f"http://{node['http_address']}/readyz") == "200\n"


@pytest.mark.skipif(shutil.which("iptables") is None, reason="cutting links needs iptables")
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            ("OUTPUT", "-p", "tcp", "--dport", str(BUS_PORT)),
            "heartbeats are received, but it does not answer on the message bus",
        ),
        (
            ("OUTPUT", "-p", "tcp", "--dport", str(PORT)),
            "no heartbeats received, but it still answers on the message bus",
        ),
        (("OUTPUT", "-p", "tcp"), "no heartbeats received, and it is not connected to the message bus"),
        (("INPUT", "-p", "tcp"), "no heartbeats received, and it is not connected to the message bus"),
    ],
    ids=["cut-off-from-the-bus-only", "heartbeats-lost-only", "cannot-send", "cannot-receive"],
)
def test_a_cut_link_is_shown_by_its_kind_and_recovers_automatically(
    cluster: Cluster, rule: tuple[str, ...], words: str
) -> None:
    before = cluster.wait_for_status("second", "healthy")
    cluster.machines.cut("second", *rule)
    try:
        node = cluster.wait_for_status("second", "offline")
        assert words in node["status_reason"]
        # The signal that still arrives must not bring it back: no flapping between the two.
        seen = {cluster.node("second")["status"] for _ in range(8)}
        assert seen == {"offline"}
    finally:
        cluster.machines.mend("second", *rule)
    after = cluster.wait_for_status("second", "healthy")
    assert (after["id"], after["epoch"]) == (before["id"], before["epoch"])
    assert cluster.node("first")["status"] == "healthy"
