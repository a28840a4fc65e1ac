"""A minute that a frontend does not deserve, and what became of everybody else meanwhile."""

import asyncio
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil

from corral.bus.client import connect_bus
from corral.bus.subjects import REPORT, node_subject
from harness.attacks import start_attackers
from harness.cluster import Cluster
from harness.engine import give_engine
from harness.localai_backend import localai_files
from harness.open_loop import OpenLoop, chat_requests
from harness.programs import Admin
from harness.tiny_model import Shelf

HEALTHY_WITHIN_S = 60.0
SAMPLE_EVERY_S = 0.25
WARM_UP_S = 3.0
MODEL = "tiny"


@dataclass
class Witness:
    """What happened to those who did nothing wrong."""

    calls: OpenLoop
    rss_before: int = 0
    rss_most: int = 0
    cpu_s: float = 0.0
    unhealthy: list[str] = field(default_factory=list)
    connections_most: int = 0
    reports_sent: int = 0

    @property
    def failures(self) -> list[str]:
        return self.calls.failures

    @property
    def grown_mb(self) -> float:
        return (self.rss_most - self.rss_before) / 1e6

    def told(self) -> str:
        return (
            f"{self.calls.told()}\n  frontend: memory {self.rss_before / 1e6:.0f} MB, grew by {self.grown_mb:.0f} MB;"
            f" {self.cpu_s / max(0.001, self.calls.sent_for_s):.2f} cores; up to {self.connections_most} descriptors;"
            f" {self.reports_sent} poisoned reports; unhealthy {self.unhealthy[:3]}"
        )


async def _watch(fleet: Cluster, admin: Admin, witness: Witness, until_s: float) -> None:
    process = psutil.Process(fleet.frontends["a"].pid)
    while time.monotonic() < until_s:
        witness.rss_most = max(witness.rss_most, process.memory_info().rss)
        witness.connections_most = max(witness.connections_most, process.num_fds())
        nodes = await asyncio.to_thread(admin.nodes)
        witness.unhealthy += [
            f"{name}: {node['status']}" for name, node in nodes.items() if node["status"] != "healthy"
        ]
        await asyncio.sleep(SAMPLE_EVERY_S)


async def _poison_reports(fleet: Cluster, node: str, witness: Witness, until_s: float) -> None:
    """As one worker that went mad would send them."""
    credentials = fleet.nats.credentials(None)
    bad = (
        b'{"node":"%b","instance":"x","epoch":9223372036854775808,"sequence":1,"backends":[],"processes":[]}',
        b'{"node":"%b","instance":"x","epoch":1,"sequence":10000000000000000000000000,"backends":[],"processes":[]}',
        b'{"node":"%b","instance":"a\\u0000b","epoch":1,"sequence":1,"backends":[],"processes":[]}',
        b"[" * 100_000,
        b"%b\xff",
    )
    async with connect_bus(fleet.nats.options(credentials, inbox="_INBOX.hostile")) as bus:
        for number in count():
            if time.monotonic() > until_s:
                return
            text = bad[number % len(bad)]
            await bus.publish(node_subject(node, REPORT), text.replace(b"%b", node.encode()))
            witness.reports_sent += 1
            await asyncio.sleep(0.01)


async def _everybody_else(fleet: Cluster, admin: Admin, witness: Witness, *, for_s: float) -> None:
    until_s = time.monotonic() + for_s
    mad = next(iter(admin.nodes().values()))["id"]
    await asyncio.gather(
        witness.calls.run(for_s),
        _watch(fleet, admin, witness, until_s),
        _poison_reports(fleet, mad, witness, until_s),
    )


def _serve_tiny(fleet: Cluster, admin: Admin, shelf: Shelf) -> None:
    """A real engine with a very small model, on one node."""
    config = shelf.config(MODEL, threads=1, options="[parallel:8]")
    added = admin.call("POST", "/api/models", body={"config": config})
    assert added.status == 201, added.body
    asked = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
    answer = admin.call("POST", "/v1/chat/completions", body=asked, within_s=120)
    assert answer.status == 200, answer.body


def withstand(
    fleet: Cluster, engine: Path, shelf: Shelf, *, for_s: float, idle: int, per_s: int = 200, nodes: int = 5
) -> Witness:
    """An install on all nodes, and inference on one of them, under attack."""
    fleet.offer_image("echo", localai_files("1"), version="1.0")
    admin = fleet.start_frontend("a", "--auto-approve", "--suspect-after", "10", "--offline-after", "20")
    names = [f"node-{number}" for number in range(nodes)]
    give_engine(engine, fleet.worker_dir(names[0]))
    for name in names:
        fleet.start_worker(name)
    for name in names:
        admin.wait_for_status(name, "healthy", within_s=HEALTHY_WITHIN_S)
    _serve_tiny(fleet, admin, shelf)
    witness = Witness(OpenLoop(admin.url, admin.key, chat_requests(MODEL), per_s=per_s))
    warm_up = OpenLoop(admin.url, admin.key, chat_requests(MODEL), per_s=per_s)
    asyncio.run(warm_up.run(WARM_UP_S))
    assert not warm_up.failures, warm_up.failures[:5]
    frontend = psutil.Process(fleet.frontends["a"].pid)
    witness.rss_before, cpu_before_s = frontend.memory_info().rss, sum(frontend.cpu_times()[:2])
    attackers = start_attackers(int(admin.url.rpartition(":")[2]), for_s, idle)
    try:
        job = fleet.begin("/api/backends/install/echo")
        asyncio.run(_everybody_else(fleet, admin, witness, for_s=for_s))
        witness.cpu_s = sum(frontend.cpu_times()[:2]) - cpu_before_s
        fleet.wait_for_operation(job, within_s=60)
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.wait(30)
    assert set(fleet.statuses(job).values()) == {"success"}
    return witness
