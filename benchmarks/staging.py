"""Weights from a frontend to a worker over loopback, with the connection cut every 200 MB, against curl without cuts.

    python benchmarks/staging.py [gigabytes]

BENCH_DIR names the directory it works in: a slow disk hides what the two senders differ in, /dev/shm does not.

Counts every byte that crosses the cutting proxy: what is sent twice is what was on its way when the line was cut.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from corral.system.file_upload import upload
from corral.system.local_files import LocalFile
from corral.system.worker_files import FileServer
from harness.nats import Nats
from harness.network_cuts import CuttingProxy
from harness.single_worker import SingleWorker

CUT_EVERY_BYTES = 200_000_000


async def measure(worker: SingleWorker, file: LocalFile, sha256: str) -> None:
    async with worker.frontend() as frontend:
        token = (await frontend.ask("corral.report.now"))["http_token"]
    began = time.monotonic()
    command = [
        "curl", "-sS", "--fail", "-X", "PUT", "-T", str(file.path), "-H", f"Authorization: Bearer {token}",
        "-H", f"X-Content-SHA256: {sha256}", f"{worker.url}/v1/files/models/by-curl.bin",
    ]  # fmt: skip
    await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    curl_s = time.monotonic() - began
    proxy = CuttingProxy(worker.port, CUT_EVERY_BYTES)
    began = time.monotonic()
    await upload(FileServer(f"http://127.0.0.1:{proxy.port}", token), file, sha256=sha256)
    ours_s = time.monotonic() - began
    target = worker.data_dir / "models" / file.key.removeprefix("models/")
    same = await asyncio.to_thread(lambda: target.read_bytes() == file.path.read_bytes())
    rate, curl_rate = file.size / ours_s / 1e6, file.size / curl_s / 1e6
    print(f"{file.size / 1e9:.1f} GB, curl without cuts {curl_s:.2f} s ({curl_rate:.0f} MB/s)")
    print(f"with {proxy.cuts} cuts: {ours_s:.2f} s ({rate:.0f} MB/s), {100 * rate / curl_rate:.0f} % of curl")
    again = proxy.bytes_up - file.size
    print(f"bytes sent more than once, headers included: {again / 1e6:.2f} MB; arrived whole: {same}")


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 2) * 1e9)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        directory = Path(name)
        path = directory / "weights.bin"
        digest = hashlib.sha256()
        with path.open("wb") as file:
            left = size
            while left:
                part = os.urandom(min(left, 16 << 20))
                file.write(part)
                digest.update(part)
                left -= len(part)
        nats = Nats(directory)
        worker = SingleWorker(directory, nats)
        try:
            asyncio.run(measure(worker, LocalFile("models/by-corral.bin", path, size), digest.hexdigest()))
        finally:
            worker.close()
            nats.stop()


if __name__ == "__main__":
    main()
