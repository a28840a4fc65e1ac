"""Runs inside one network namespace: a bus, a worker and a backend; asks from another one what a stranger gets.

lone_worker.py HOST SOURCE DIRECTORY WORDS...    HOST to listen on; WORDS run a command on the other machine
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from harness.namespaces import TwoMachines
from harness.nats import Nats
from harness.single_worker import SingleWorker
from harness.worker_commands import install, start

ASK = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    request = urllib.request.Request(url, headers={"Authorization": "Bearer guess"})
    try:
        print(urllib.request.urlopen(request, timeout=30).status)
    except urllib.error.HTTPError as error:
        print(error.code)
    except OSError as error:
        print("refused" if "refused" in str(error) else error)
"""


async def main(host: str, source: Path, directory: Path, other_machine: list[str]) -> None:
    (directory / "bus").mkdir(parents=True)
    nats = Nats(directory / "bus")
    worker = SingleWorker(directory, nats, "--no-keep-backends", "--host", host, "--advertise", host)
    try:
        async with worker.frontend() as frontend:
            await install(frontend, source)
            started = await start(frontend, "m")
            assert started["success"], started
        port = started["address"].rpartition(":")[2]
        address = TwoMachines.ADDRESSES["first"]
        urls = [f"http://{address}:{port}/x", f"http://{address}:{worker.port}/v1/backend-logs"]
        asked = await asyncio.to_thread(
            subprocess.run,
            [*other_machine, sys.executable, "-c", ASK, *urls],
            capture_output=True,
            text=True,
            check=True,
        )
        print(json.dumps(dict(zip(urls, asked.stdout.split("\n"), strict=False))))
    finally:
        left = worker.close()
        nats.stop()
        assert left == []


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
