"""The simulated workers of `fleet_fanout`, in a process of their own: real registrations, real answers on the bus."""

import asyncio
import hashlib
import json
from dataclasses import dataclass
from multiprocessing.connection import Connection

import uvloop

from corral.bus.client import Bus, BusMessage, BusOptions, Credentials, connect_bus
from heartbeats import SimulatedWorker

DIGEST = hashlib.sha256(b"a backend").hexdigest()
INBOX = "_INBOX.bench"


@dataclass(frozen=True, slots=True)
class Place:
    bus_url: str
    credentials: Credentials
    port: int


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


async def join(workers: list[SimulatedWorker]) -> None:
    for start in range(0, len(workers), 50):
        batch = workers[start : start + 50]
        await asyncio.gather(*(worker.connect() for worker in batch))
        await asyncio.gather(*(worker.register() for worker in batch))
        await asyncio.gather(*(worker.beat() for worker in batch))


async def serve(place: Place, wanted: Connection) -> None:
    """`wanted` tells how many workers there shall be and how long each takes; `None` is the end."""
    options = BusOptions(
        servers=(place.bus_url,), name="bench", inbox=INBOX, inbox_for=lambda _subject: INBOX,
        credentials=lambda: place.credentials,
    )  # fmt: skip
    workers: list[SimulatedWorker] = []
    async with connect_bus(options) as bus:
        fleet = SimulatedFleet(bus)
        await fleet.start()
        while (more := await asyncio.to_thread(wanted.recv)) is not None:
            count, fleet.take_s = more
            joining = [SimulatedWorker(number, place.port) for number in range(len(workers), count)]
            await join(joining)
            workers += joining
            wanted.send(len(workers))


def run(place: Place, wanted: Connection) -> None:
    uvloop.run(serve(place, wanted))
