"""A thousand workers, each beating every ten seconds, against one frontend on PostgreSQL.

The workers are simulated: real registrations, real HTTP connections kept open, real answers on the bus, no machines.
Prints the latency of heartbeats, the frontend's share of a core, and its memory.

    ./dev bench heartbeats
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.bus.client import BusMessage, connect_bus
from harness.nats import Nats
from harness.ports import free_port
from harness.postgres import Postgres
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import wait_until

WORKERS = 1000
BEAT_EVERY_S = 10.0
MEASURE_S = 40.0
TOKEN = "bench-token"
ADMIN_KEY = "corral-bench-key"


class SimulatedWorker:
    def __init__(self, number: int, port: int) -> None:
        self._number = number
        self._port = port
        self._key = f"{number:043d}"
        self.node_id = ""

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
            "name": f"worker-{self._number}", "address": f"10.0.0.1:{self._number}", "token": TOKEN,
            "total_ram": 64 << 30, "available_ram": 60 << 30, "total_disk": 1 << 40, "available_disk": 1 << 39,
            "corral": {"node_key": self._key, "instance": "bench"},
        }  # fmt: skip
        status, answer = await self.post("/api/node/register", TOKEN, body)
        assert status == 201, answer
        self.node_id = json.loads(answer)["id"]

    async def beat(self) -> float:
        body = {"available_ram": 59 << 30, "available_disk": 1 << 39, "corral": {"instance": "bench"}}
        began = time.perf_counter()
        status, answer = await self.post(f"/api/node/{self.node_id}/heartbeat", self._key, body)
        took = time.perf_counter() - began
        assert status == 200, answer
        return took

    async def beat_for(self, seconds: float, latencies: list[float]) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        due = loop.time() + BEAT_EVERY_S * self._number / WORKERS
        while due < ends:
            await asyncio.sleep(due - loop.time())
            latencies.append(await self.beat())
            due += BEAT_EVERY_S


async def run(nats: Nats, admin: Admin, frontend: psutil.Process, port: int) -> None:
    workers = [SimulatedWorker(number, port) for number in range(WORKERS)]
    async with connect_bus(nats.options(nats.credentials(None), inbox="_INBOX.bench")) as bus:

        async def running(_message: BusMessage) -> bytes:
            return b'{"models":[],"epoch":1}'

        await bus.serve("nodes.*.models.running", running, concurrency=256)
        began = time.perf_counter()
        for start in range(0, WORKERS, 50):
            batch = workers[start : start + 50]
            await asyncio.gather(*(worker.connect() for worker in batch))
            await asyncio.gather(*(worker.register() for worker in batch))
        registered_s = time.perf_counter() - began
        await asyncio.gather(*(worker.beat() for worker in workers))

        def counts() -> dict[str, int]:
            return admin.call("GET", "/api/status").json()["nodes"]

        healthy = await asyncio.to_thread(
            wait_until, lambda: (c := counts())["healthy"] == WORKERS and c, what="all are healthy", within_s=60
        )
        latencies: list[float] = []
        cpu_before, wall_before = frontend.cpu_times(), time.perf_counter()
        await asyncio.gather(*(worker.beat_for(MEASURE_S, latencies) for worker in workers))
        wall = time.perf_counter() - wall_before
        cpu = frontend.cpu_times()
        still = await asyncio.to_thread(counts)
    share = (cpu.user + cpu.system - cpu_before.user - cpu_before.system) / wall
    latencies.sort()
    began = time.perf_counter()
    listed = len(admin.call("GET", "/api/nodes").json())
    list_s = time.perf_counter() - began
    print(f"workers registered            {WORKERS} in {registered_s:.1f} s; healthy: {healthy['healthy']}")
    print(f"heartbeats answered           {len(latencies)} in {wall:.0f} s; still healthy: {still['healthy']}")
    print(f"latency p50 / p99 / max       {statistics.median(latencies) * 1e3:.1f} / ", end="")
    print(f"{latencies[int(len(latencies) * 0.99)] * 1e3:.1f} / {latencies[-1] * 1e3:.1f} ms")
    print(f"frontend's share of a core    {share:.2f}, health passes over all nodes included")
    print(f"frontend's memory             {frontend.memory_info().rss / (1 << 20):.0f} MiB")
    print(f"GET /api/nodes ({listed} nodes)   {list_s * 1e3:.0f} ms")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres, nats, port = Postgres(directory / "postgres"), Nats(directory / "nats"), free_port()
        environment = clean_environment(
            **nats.secrets(), CORRAL_STORE=postgres.create("bench"), CORRAL_ADMIN_KEY=ADMIN_KEY,
            CORRAL_REGISTRATION_TOKEN=TOKEN,
        )  # fmt: skip
        frontend = Program(
            "frontend", "--data-dir", str(directory / "f"), "--listen", f"127.0.0.1:{port}", "--auto-approve",
            log=directory / "log", environment=environment,
        )  # fmt: skip
        try:
            admin = Admin(f"http://127.0.0.1:{port}", ADMIN_KEY)
            wait_until(lambda: call("GET", f"{admin.url}/readyz").status == 200, what="ready", within_s=30)
            asyncio.run(run(nats, admin, psutil.Process(frontend.pid), port))
        except BaseException:
            print(frontend.output()[-2000:])
            raise
        finally:
            frontend.stop()
            nats.stop()
            postgres.stop()


if __name__ == "__main__":
    main()
