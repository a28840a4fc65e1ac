"""Somebody who watches `/api/operations`, twenty times a second, in a process that does nothing else."""

import http.client
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import msgspec
import psutil

EVERY_S = 0.05


class _Listed(msgspec.Struct):
    jobID: str


class _Operations(msgspec.Struct):
    operations: list[_Listed]


@dataclass(slots=True)
class Seen:
    latencies_s: list[float] = field(default_factory=list)
    most_rss: int = 0


def watch(port: int, key: str, frontend: int, told: Connection) -> None:
    """Sends the set of what is listed whenever it changes, and `Seen` once something is sent here."""
    process, seen = psutil.Process(frontend), Seen()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    decode = msgspec.json.Decoder(_Operations).decode
    before: set[str] | None = None
    due_s = time.perf_counter()
    while not told.poll(max(0.0, due_s - time.perf_counter())):
        began_s = time.perf_counter()
        connection.request("GET", "/api/operations", headers={"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        body = answer.read()
        seen.latencies_s.append(time.perf_counter() - began_s)
        assert answer.status == 200, body
        listed = {operation.jobID for operation in decode(body).operations}
        if listed != before:
            before = listed
            told.send(listed)
        seen.most_rss = max(seen.most_rss, process.memory_info().rss)
        due_s = max(due_s + EVERY_S, time.perf_counter())
    told.send(seen)
