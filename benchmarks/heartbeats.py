"""A thousand workers with two replicas each, each beating and reporting every ten seconds, against two frontends on
PostgreSQL: one gets all the heartbeats, the other only hears the reports.

The workers are simulated: real registrations, real HTTP connections kept open, real answers and reports on the bus, no
machines and no processes. Prints the latency of heartbeats, each frontend's share of a core, and its memory.

    ./dev bench heartbeats
"""

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import asyncpg
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.bus.client import Bus, BusMessage, connect_bus
from corral.bus.messages import ListedBackend, NodeReport, ReportedProcess, encode
from corral.bus.subjects import MODELS_RUNNING, REPORT, REPORT_NOW, node_subject
from harness.nats import Nats
from harness.ports import free_port
from harness.postgres import Postgres
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import wait_until

WORKERS = 1000
REPLICAS_EACH = 2
MODELS = 20
BEAT_EVERY_S = 10.0
MEASURE_S = 40.0
TOKEN = "bench-token"
ADMIN_KEY = "corral-bench-key"
BACKEND, DIGEST = "llama-cpp", "sha256:" + "1" * 64


class SimulatedWorker:
    def __init__(self, number: int, port: int) -> None:
        self._number = number
        self._port = port
        self._key = f"{number:043d}"
        self._sequence = 0
        self.node_id = ""

    @property
    def models(self) -> list[str]:
        return [f"model-{(self._number + more) % MODELS}" for more in range(REPLICAS_EACH)]

    def pid(self, model: str) -> int:
        return 1000 + self.models.index(model)

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, bearer: str, body: dict[str, object]) -> tuple[int, bytes]:
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {bearer}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = next(int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.startswith(b"content-length"))
        return status, await self._reader.readexactly(length)

    async def register(self) -> None:
        body = {
            "name": f"worker-{self._number}", "address": f"10.0.0.1:{self._number + 1}", "token": TOKEN,
            "total_ram": 64 << 30, "available_ram": 60 << 30, "total_disk": 1 << 40, "available_disk": 1 << 39,
            "corral": {"node_key": self._key, "instance": "bench"},
        }  # fmt: skip
        status, answer = await self.post("/api/node/register", TOKEN, body)
        assert status == 201, answer
        self.node_id = json.loads(answer)["id"]

    def report(self) -> bytes:
        """Memory moves a little all the time, as it does."""
        self._sequence += 1
        processes = [
            ReportedProcess(
                process_key=f"{model}#0", model_id=model, replica_index=0, backend=BACKEND, digest=DIGEST,
                protocol="openai", state="ready", pid=self.pid(model), port=40000, address="127.0.0.1:40000",
                memory_bytes=random.randint(4 << 30, 5 << 30), cpu_s=1.0,
            )
            for model in self.models
        ]  # fmt: skip
        backends = [ListedBackend(name=BACKEND, digest=DIGEST, is_system=False, is_meta=False)]
        report = NodeReport(
            node=self.node_id, instance="bench", epoch=1, sequence=self._sequence, backends=backends,
            processes=processes,
        )  # fmt: skip
        return encode(report)

    async def beat(self) -> float:
        body = {"available_ram": 59 << 30, "available_disk": 1 << 39, "corral": {"instance": "bench"}}
        began = time.perf_counter()
        status, answer = await self.post(f"/api/node/{self.node_id}/heartbeat", self._key, body)
        took = time.perf_counter() - began
        assert status == 200, answer
        return took

    async def beat_for(self, seconds: float, latencies: list[float], bus: Bus) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        due = loop.time() + BEAT_EVERY_S * self._number / WORKERS
        while due < ends:
            await asyncio.sleep(due - loop.time())
            latencies.append(await self.beat())
            await bus.publish(node_subject(self.node_id, REPORT), self.report())
            due += BEAT_EVERY_S


async def serve_questions(bus: Bus, workers: list[SimulatedWorker]) -> None:
    by_id = {worker.node_id: worker for worker in workers}

    async def running(_message: BusMessage) -> bytes:
        return b'{"models":[],"epoch":1}'

    async def report(message: BusMessage) -> bytes:
        return by_id[message.subject.split(".")[1]].report()

    await bus.serve(f"nodes.*.{MODELS_RUNNING}", running, concurrency=256)
    await bus.serve(f"nodes.*.{REPORT_NOW}", report, concurrency=256)


async def add_replicas(store: str, admin: Admin, workers: list[SimulatedWorker]) -> None:
    """As if they had been loaded: what nobody would wait for here."""
    for number in range(MODELS):
        config = f"name: model-{number}\nbackend: {BACKEND}\nparameters:\n  model: model-{number}.gguf\n"
        answer = await asyncio.to_thread(admin.call, "POST", "/api/models", body={"config": config})
        assert answer.status == 201, answer.body
    connection = await asyncpg.connect(store)
    try:
        revisions = dict(await connection.fetch("SELECT name, revision FROM models"))
        await connection.executemany(
            "INSERT INTO replicas (id, node_id, model, slot, revision, state, reason, address, protocol, endpoints,"
            " token, process_key, backend, backend_digest, epoch, generation, pid, disk_bytes, load_options, last_used,"
            " missed, stop_attempts, stop_error, stop_due_at, created_at, changed_at, ready_at) SELECT $1, $2, $3, 0,"
            " $4, 'ready', '', '127.0.0.1:40000', 'openai', '', 'token', $5, $6, $7, 1, 1, $8, 0, '{}', now, 0, 0, '',"
            " 0, now, now, now FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock",
            [
                (f"{worker.node_id}-{model}", worker.node_id, model, revisions[model], f"{model}#0", BACKEND, DIGEST,
                 worker.pid(model))
                for worker in workers for model in worker.models
            ],
        )  # fmt: skip
    finally:
        await connection.close()
    for number in range(MODELS):
        wanted = {"model_name": f"model-{number}", "min_replicas": WORKERS * REPLICAS_EACH // MODELS}
        answer = await asyncio.to_thread(admin.call, "POST", "/api/nodes/scheduling", body=wanted)
        assert answer.status == 200, answer.body


async def run(nats: Nats, store: str, admin: Admin, frontends: list[psutil.Process], port: int) -> None:
    workers = [SimulatedWorker(number, port) for number in range(WORKERS)]
    async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.bench")) as bus:
        began = time.perf_counter()
        for start in range(0, WORKERS, 50):
            batch = workers[start : start + 50]
            await asyncio.gather(*(worker.connect() for worker in batch))
            await asyncio.gather(*(worker.register() for worker in batch))
        registered_s = time.perf_counter() - began
        await serve_questions(bus, workers)
        await asyncio.gather(*(worker.beat() for worker in workers))

        def counts() -> dict[str, int]:
            return admin.call("GET", "/api/status").json()["nodes"]

        healthy = await asyncio.to_thread(
            wait_until, lambda: (c := counts())["healthy"] == WORKERS and c, what="all are healthy", within_s=60
        )
        await add_replicas(store, admin, workers)
        for worker in workers:
            await bus.publish(node_subject(worker.node_id, REPORT), worker.report())
        await asyncio.sleep(BEAT_EVERY_S)  # until what a new fleet costs once is done
        latencies: list[float] = []
        before, wall_before = [frontend.cpu_times() for frontend in frontends], time.perf_counter()
        await asyncio.gather(*(worker.beat_for(MEASURE_S, latencies, bus) for worker in workers))
        wall = time.perf_counter() - wall_before
        after = [frontend.cpu_times() for frontend in frontends]
        still = await asyncio.to_thread(counts)
    ready = sum(replica["corral_state"] == "ready" for replica in admin.call("GET", "/api/replicas").json())
    latencies.sort()
    began = time.perf_counter()
    listed = len(admin.call("GET", "/api/nodes").json())
    list_s = time.perf_counter() - began
    print(f"workers registered            {WORKERS} in {registered_s:.1f} s; healthy: {healthy['healthy']}")
    print(f"heartbeats answered           {len(latencies)} in {wall:.0f} s; still healthy: {still['healthy']}")
    print(f"replicas                      {ready} ready")
    print(f"latency p50 / p99 / max       {statistics.median(latencies) * 1e3:.1f} / ", end="")
    print(f"{latencies[int(len(latencies) * 0.99)] * 1e3:.1f} / {latencies[-1] * 1e3:.1f} ms")
    for name, frontend, first, last in zip(("with heartbeats", "reports only"), frontends, before, after, strict=True):
        share = (last.user + last.system - first.user - first.system) / wall
        memory = frontend.memory_info().rss / (1 << 20)
        print(f"frontend, {name:<19} {share:.2f} of a core, {memory:.0f} MiB")
    print(f"GET /api/nodes ({listed} nodes)   {list_s * 1e3:.0f} ms")


@contextmanager
def running_frontend(directory: Path, port: int, environment: dict[str, str]) -> Iterator[Program]:
    program = Program(
        "frontend", "--data-dir", str(directory), "--listen", f"127.0.0.1:{port}", "--auto-approve",
        log=directory.with_suffix(".log"), environment=environment,
    )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}/readyz"
        wait_until(lambda: call("GET", address).status == 200, what="ready", within_s=30)
        yield program
    except BaseException:
        print(program.output()[-2000:])
        raise
    finally:
        program.stop()


@contextmanager
def fleet_services(directory: Path) -> Iterator[tuple[Nats, str]]:
    postgres, nats = Postgres(directory / "postgres"), Nats(directory / "nats")
    try:
        yield nats, postgres.create("bench")
    finally:
        nats.stop()
        postgres.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, closing(asyncio.new_event_loop()) as loop:
        directory = Path(name)
        directory.chmod(0o711)
        with fleet_services(directory) as (nats, store):
            environment = clean_environment(
                **nats.secrets(), CORRAL_STORE=store, CORRAL_ADMIN_KEY=ADMIN_KEY, CORRAL_REGISTRATION_TOKEN=TOKEN
            )
            port, other = free_port(), free_port()
            with (
                running_frontend(directory / "f", port, environment) as first,
                running_frontend(directory / "g", other, environment) as second,
            ):
                admin = Admin(f"http://127.0.0.1:{port}", ADMIN_KEY)
                frontends = [psutil.Process(program.pid) for program in (first, second)]
                loop.run_until_complete(run(nats, store, admin, frontends, port))


if __name__ == "__main__":
    main()
