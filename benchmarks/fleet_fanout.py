"""An install on a hundred and on a thousand nodes at once, and a controller's pass over a hundred thousand orders.

The workers are simulated: real registrations, real answers on the bus after a set time, no machines. Frontend, bus and
PostgreSQL are real. Prints how long each took, the frontend's memory, and how fast `/api/operations` answers meanwhile.

    ./dev bench fleet_fanout
"""

import asyncio
import hashlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.bus.client import Bus, BusMessage, connect_bus
from corral.store.postgres import PostgresDatabase
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import free_port, wait_until
from heartbeats import TOKEN, SimulatedWorker

ADMIN_KEY = "corral-bench-key"
DIGEST = hashlib.sha256(b"a backend").hexdigest()
ROUNDS = ((100, 2.0, 4.0), (1000, 0.5, 6.0))
"""How many workers, how long each takes, and within what all must have ended."""
INTENTS, NODES, DUE = 100_000, 1000, 100


class SimulatedFleet:
    """All workers' ends of the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.take_s = 0.0
        self._installed: dict[str, dict[str, int]] = {}
        self._sequence = 0

    async def start(self) -> None:
        await self._bus.serve("nodes.*.models.running", self._running, concurrency=256)
        await self._bus.serve("nodes.*.backend.install", self._install, concurrency=4096)
        await self._bus.serve("nodes.*.corral.report.now", self._report, concurrency=1024)

    async def _running(self, _message: BusMessage) -> bytes:
        return b'{"models":[],"epoch":1}'

    async def _install(self, message: BusMessage) -> bytes:
        node, request = message.subject.split(".")[1], json.loads(message.data)
        subject = f"nodes.{node}.backend.install.{request['op_id']}.progress"
        for sequence, part in enumerate((0.0, 0.5), 1):
            progress = {
                "op_id": request["op_id"], "node_id": node, "backend": request["backend"], "percentage": 100 * part,
                "phase": "downloading", "file_name": "layer",
                "corral": {"sequence": sequence, "phase": "downloading", "bytes_done": 1, "bytes_total": 2},
            }  # fmt: skip
            await self._bus.publish(subject, json.dumps(progress).encode())
            await asyncio.sleep(self.take_s / 2)
        self._installed.setdefault(node, {})[request["backend"]] = request["corral"]["generation"]
        return b'{"success":true}'

    async def _report(self, message: BusMessage) -> bytes:
        node = message.subject.split(".")[1]
        self._sequence += 1
        backends = [
            {"name": name, "is_system": False, "is_meta": False, "digest": f"sha256:{DIGEST}", "generation": generation}
            for name, generation in self._installed.get(node, {}).items()
        ]
        report = {
            "node": node, "instance": "bench", "epoch": 1, "sequence": self._sequence, "backends": backends,
            "processes": [],
        }  # fmt: skip
        return json.dumps(report).encode()


class Poller:
    """Somebody who watches the operations, twenty times a second, and how large the frontend gets."""

    def __init__(self, admin: Admin, frontend: psutil.Process) -> None:
        self._admin, self._frontend = admin, frontend
        self.latencies: list[float] = []
        self.most_rss = 0
        self.listed: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            began = time.perf_counter()
            answer = self._admin.call("GET", "/api/operations")
            self.latencies.append(time.perf_counter() - began)
            assert answer.status == 200, answer.body
            self.listed = {operation["jobID"] for operation in answer.json()["operations"]}
            self.most_rss = max(self.most_rss, self._frontend.memory_info().rss)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)


async def join(workers: list[SimulatedWorker]) -> None:
    for start in range(0, len(workers), 50):
        batch = workers[start : start + 50]
        await asyncio.gather(*(worker.connect() for worker in batch))
        await asyncio.gather(*(worker.register() for worker in batch))
        await asyncio.gather(*(worker.beat() for worker in batch))


async def fan_out(nats: Nats, admin: Admin, frontend: psutil.Process, port: int) -> None:
    async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.bench")) as bus:
        fleet = SimulatedFleet(bus)
        await fleet.start()
        workers: list[SimulatedWorker] = []
        for position, (count, take_s, limit_s) in enumerate(ROUNDS):
            fleet.take_s = take_s
            more = [SimulatedWorker(number, port) for number in range(len(workers), count)]
            await join(more)
            workers += more
            await until(lambda count=count: healthy(admin) == count, "all are healthy")
            await asyncio.sleep(2)  # let the first reports settle: the install is measured, not the joining
            rss, used = frontend.memory_info().rss, frontend.cpu_times()
            poller = Poller(admin, frontend)
            began = time.perf_counter()
            answer = await asyncio.to_thread(admin.call, "POST", f"/api/backends/install/bench-{position}")
            assert answer.status == 200, answer.body
            admitted_s = time.perf_counter() - began
            job = answer.json()["jobID"]
            await until(lambda job=job, poller=poller: job in poller.listed, "it is listed")
            # What ended well is not listed any more.
            await until(lambda job=job, poller=poller: job not in poller.listed, "it has ended")
            took_s = time.perf_counter() - began
            assert state(admin, job) == "completed"
            spent = frontend.cpu_times()
            cpu_s = spent.user + spent.system - used.user - used.system
            await asyncio.to_thread(poller.stop)
            told = sorted(poller.latencies)
            grown = (poller.most_rss - rss) / (1 << 20)
            print(f"install on {count} workers, {take_s:g} s each    {took_s:.2f} s (limit {limit_s:g} s,", end=" ")
            print(f"one after another {count * take_s:.0f} s; admitted in {admitted_s:.2f} s,", end=" ")
            print(f"{cpu_s:.1f} s of the frontend's processor time)")
            print(f"  frontend's memory grew by          {grown:.0f} MiB, to {poller.most_rss / (1 << 20):.0f} MiB")
            p99 = told[min(len(told) - 1, int(len(told) * 0.99))]
            print(
                f"  /api/operations p50 / p99          {statistics.median(told) * 1e3:.1f} / {p99 * 1e3:.1f} ms", end=""
            )
            print(f" of {len(told)}", flush=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what=what, within_s=90)


def healthy(admin: Admin) -> int:
    count: int = admin.call("GET", "/api/status").json()["nodes"]["healthy"]
    return count


def state(admin: Admin, job: str) -> str:
    found: str = admin.call("GET", f"/api/operations/{job}").json()["state"]
    return found


FILL = f"""
INSERT INTO nodes (id, name, node_type, approved, drain_wanted, worker_draining, presence, presence_reason,
  presence_since, address, http_address, key_hash, epoch, max_replicas_reported, worker_labels, operator_labels,
  bus_answered, bus_failures, bus_no_responders, created_at, changed_at)
SELECT 'node-' || n, 'node-' || n, 'backend', true, false, false, 'live', '', 0, '', '', 'hash-' || n, 1, 1, '{{}}',
  '{{}}', true, 0, false, now_ms(), now_ms() FROM generate_series(1, {NODES}) AS n;
INSERT INTO operations (id, verb, backend, element, target, generation, actor, cause, plan, request_hash, state,
  cancel_wanted, error, created_at, changed_at)
SELECT 'op-' || b, 'install', 'b' || b, 'b' || b, '{{}}', b, 'bench', 'request', '', '', 'running', false, '', now_ms(),
  now_ms() FROM generate_series(1, {INTENTS // NODES}) AS b;
INSERT INTO intents (id, node_id, backend, verb, generation, operation_id, wave, wish, digest, state, live, newest,
  attempts, due_at, last_error, cancel_wanted, fence, lease_until, created_at, changed_at)
SELECT 'i-' || n || '-' || b, 'node-' || n, 'b' || b, 'install', b, 'op-' || b, 0, '{{"element":"x"}}', '', 'pending',
  true, true, 0, CASE WHEN n <= {DUE} AND b = 1 THEN now_ms() ELSE now_ms() + 3600000 END, '', false, 0, 0, now_ms(),
  now_ms() FROM generate_series(1, {NODES}) AS n, generate_series(1, {INTENTS // NODES}) AS b;
ANALYZE;
"""


async def controller_pass(url: str, fill: Callable[[], object]) -> None:
    database = await PostgresDatabase.connect(url, url, connections=4, clock=SystemClock(), ids=SystemIds())
    await database.migrate()
    await asyncio.to_thread(fill)
    stores = Stores(database)
    times = []
    claimed = 0
    for round_ in range(6):
        began = time.perf_counter()
        await stores.intents.read_held("bench")
        await stores.intents.read_background()
        claims = await stores.intents.claim(f"bench-{round_}", lease_s=15, limit=256)
        await stores.intents.finish_idle()
        times.append(time.perf_counter() - began)
        claimed = max(claimed, len(claims))
        await stores.intents.release(f"bench-{round_}")
    await database.close()
    print(f"a pass over {INTENTS} orders, {claimed} due    first {times[0] * 1e3:.0f} ms,", end=" ")
    print(f"then {statistics.median(times[1:]) * 1e3:.0f} ms (limit 250 ms)")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres, nats, port = Postgres(directory / "postgres"), Nats(directory / "nats"), free_port()
        gallery = directory / "index.yaml"
        entries = [
            {"name": f"bench-{n}", "uri": "https://backends.invalid/bench.tar", "sha256": DIGEST}
            for n in range(len(ROUNDS))
        ]
        gallery.write_text(json.dumps(entries))
        environment = clean_environment(
            **nats.secrets(), CORRAL_STORE=postgres.create("bench"), CORRAL_ADMIN_KEY=ADMIN_KEY,
            CORRAL_REGISTRATION_TOKEN=TOKEN,
        )  # fmt: skip
        frontend = Program(
            "frontend", "--data-dir", str(directory / "f"), "--listen", f"127.0.0.1:{port}", "--auto-approve",
            "--backend-galleries", f"bench=file://{gallery}", "--suspect-after", "600", "--offline-after", "1200",
            log=directory / "log", environment=environment,
        )  # fmt: skip
        try:
            admin = Admin(f"http://127.0.0.1:{port}", ADMIN_KEY)
            wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what="ready", within_s=30)
            asyncio.run(fan_out(nats, admin, psutil.Process(frontend.pid), port))
        except BaseException:
            print(frontend.output()[-4000:])
            raise
        finally:
            with suppress(Exception):
                frontend.stop()
            nats.stop()
        url = postgres.create("orders")
        asyncio.run(controller_pass(url, lambda: postgres.run_sql("orders", FILL)))
        postgres.stop()


if __name__ == "__main__":
    main()
