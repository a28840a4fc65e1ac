"""An install on a hundred and on a thousand nodes at once, and a controller's pass over a hundred thousand orders.

The workers are simulated: real registrations, real answers on the bus after a set time, no machines. Frontend, bus and
PostgreSQL are real, and every part has a process of its own. Prints how long each took, what it cost in processor time,
the frontend's memory, and how fast `/api/operations` answers meanwhile.

    ./dev bench fleet_fanout
"""

import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.store.engine.postgres import PostgresDatabase
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from fanout_parts.watcher import Seen, watch
from fanout_parts.workers import DIGEST, Place, run
from harness.nats import Nats
from harness.ports import free_port
from harness.postgres import Postgres
from harness.programs import Admin, Program, call, clean_environment
from harness.waiting import wait_until
from heartbeats import TOKEN

ADMIN_KEY = "corral-bench-key"
ROUNDS = ((100, 2.0, 4.0), (1000, 0.5, 6.0))
"""How many workers, how long each takes, and within what all must have ended."""
INTENTS, NODES, DUE = 100_000, 1000, 100
_spawn = multiprocessing.get_context("spawn")


@contextmanager
def beside(work: Callable[..., None], *arguments: object) -> Iterator[tuple[Connection, int]]:
    """Runs it in a process of its own; gives our end of a pipe to it, and its id."""
    ours, theirs = _spawn.Pipe()
    process = _spawn.Process(target=work, args=(*arguments, theirs), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield ours, process.pid
    finally:
        process.terminate()
        process.join(10)


def receive(end: Connection, what: str, *, within_s: float = 90.0) -> Any:
    if not end.poll(within_s):
        raise AssertionError(f"not within {within_s:g} s: {what}")
    return end.recv()


def await_listing(watcher: Connection, condition: Callable[[set[str]], bool], what: str) -> None:
    while not condition(receive(watcher, what)):
        pass


def cpu_s(process: psutil.Process) -> float:
    """With all that it started and that runs or ran."""
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def fan_out(admin: Admin, port: int, workers: Connection, processes: dict[str, psutil.Process]) -> None:
    frontend = processes["frontend"]
    for position, (count, take_s, limit_s) in enumerate(ROUNDS):
        workers.send((count, take_s))
        receive(workers, "all have joined")
        wait_until(lambda count=count: healthy(admin) == count, what="all are healthy", within_s=90)
        time.sleep(2)  # let the first reports settle: the install is measured, not the joining
        with beside(watch, port, ADMIN_KEY, frontend.pid) as (watcher, _):
            receive(watcher, "somebody watches")
            rss, used = frontend.memory_info().rss, {name: cpu_s(process) for name, process in processes.items()}
            began = time.perf_counter()
            answer = admin.call("POST", f"/api/backends/install/bench-{position}")
            assert answer.status == 200, answer.body
            admitted_s = time.perf_counter() - began
            job = answer.json()["jobID"]
            await_listing(watcher, lambda listed, job=job: job in listed, "it is listed")
            # What ended well is not listed any more.
            await_listing(watcher, lambda listed, job=job: job not in listed, "it has ended")
            took_s = time.perf_counter() - began
            spent = {name: cpu_s(process) - used[name] for name, process in processes.items()}
            watcher.send("over")
            seen = receive(watcher, "what was seen")
        assert state(admin, job) == "completed"
        print(f"install on {count} workers, {take_s:g} s each    {took_s:.2f} s (limit {limit_s:g} s,", end=" ")
        print(f"one after another {count * take_s:.0f} s; admitted in {admitted_s:.2f} s)")
        print(f"  processor time                     {', '.join(f'{n} {s:.1f} s' for n, s in spent.items())}")
        show(seen, rss)


def show(seen: Seen, rss_before: int) -> None:
    told = sorted(seen.latencies_s)
    p99 = told[min(len(told) - 1, int(len(told) * 0.99))]
    grown = (seen.most_rss - rss_before) / (1 << 20)
    print(f"  frontend's memory grew by          {grown:.0f} MiB, to {seen.most_rss / (1 << 20):.0f} MiB")
    print(f"  /api/operations p50 / p99 / max    {statistics.median(told) * 1e3:.1f} / {p99 * 1e3:.1f} /", end=" ")
    print(f"{told[-1] * 1e3:.1f} ms of {len(told)} (limit 50 ms)", flush=True)


def healthy(admin: Admin) -> int:
    count: int = admin.call("GET", "/api/status").json()["nodes"]["healthy"]
    return count


def state(admin: Admin, job: str) -> str:
    found: str = admin.call("GET", f"/api/operations/{job}").json()["state"]
    return found


FILL = f"""
INSERT INTO nodes (id, name, node_type, approved, drain_requested, worker_draining, presence, presence_reason,
  presence_since, address, http_address, key_hash, epoch, max_replicas_reported, worker_labels, operator_labels,
  bus_answered, bus_failures, bus_no_responders, created_at, changed_at)
SELECT 'node-' || n, 'node-' || n, 'backend', true, false, false, 'live', '', 0, '', '', 'hash-' || n, 1, 1, '{{}}',
  '{{}}', true, 0, false, now_ms(), now_ms() FROM generate_series(1, {NODES}) AS n;
INSERT INTO operations (id, verb, backend, reference, target, generation, actor, cause, request_hash, state,
  cancel_requested, error, created_at, changed_at)
SELECT 'op-' || b, 'install', 'b' || b, 'b' || b, '{{}}', b, 'bench', 'request', '', 'running', false, '', now_ms(),
  now_ms() FROM generate_series(1, {INTENTS // NODES}) AS b;
INSERT INTO intents (id, node_id, backend, verb, generation, operation_id, spec, digest, state, live, newest,
  attempts, due_at, last_error, cancel_requested, fence, lease_until, created_at, changed_at)
SELECT 'i-' || n || '-' || b, 'node-' || n, 'b' || b, 'install', b, 'op-' || b, '{{"reference":"x"}}', '', 'pending',
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
        await stores.intents.read_unconfirmed()
        claims = await stores.intents.claim(f"bench-{round_}", lease_s=15, limit=256)
        await stores.intents.finish_idle()
        times.append(time.perf_counter() - began)
        claimed = max(claimed, len(claims))
        await stores.intents.release(f"bench-{round_}")
    await database.close()
    print(f"a pass over {INTENTS} intents, {claimed} due   first {times[0] * 1e3:.0f} ms,", end=" ")
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
            with beside(run, Place(nats.url, nats.credentials(None), port)) as (workers, workers_pid):
                processes = {
                    "frontend": psutil.Process(frontend.pid), "simulated workers": psutil.Process(workers_pid),
                    "PostgreSQL": psutil.Process(postgres.pid), "bus": psutil.Process(nats.pid),
                }  # fmt: skip
                fan_out(admin, port, workers, processes)
        except BaseException:
            print(frontend.output()[-4000:])
            raise
        finally:
            with suppress(Exception):
                frontend.stop()
            nats.stop()
        url = postgres.create("intents")
        asyncio.run(controller_pass(url, lambda: postgres.run_sql("intents", FILL)))
        postgres.stop()


if __name__ == "__main__":
    main()
