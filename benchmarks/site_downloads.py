"""An image that all workers of one site install at once through a slow registry, against one worker alone.

    python benchmarks/site_downloads.py [workers] [megabytes] [megabytes a second]

Three runs in one fleet, each with an image of its own: one worker, all workers, and all workers while the one that
fetches is killed half-way. Prints the bytes that left the registry as a multiple of the image, and the time as a
multiple of that of one worker. Exits with 1 above the goals: 1.2 images, and 1.5 times the time of one worker (2 where
the leader is killed: its loss is noticed after up to 8 s, and the bytes that no other node has yet are fetched again).
BENCH_DIR names the directory it works in.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.cluster import Cluster, approve
from harness.localai_backend import localai_files
from harness.nats import Nats
from harness.oci_registry import OciRegistry, SharedLine

LAYERS = 8
IMAGES_MOST, TIMES_MOST, TIMES_MOST_KILLED = 1.2, 1.5, 2.0


class Runs:
    def __init__(self, fleet: Cluster, line: SharedLine, image_bytes: int) -> None:
        self._fleet, self._line, self._image_bytes = fleet, line, image_bytes

    def _offer(self, name: str) -> str:
        layers = [{**localai_files(name)}]
        layers += [{f"{name}{number}": os.urandom(self._image_bytes // LAYERS)} for number in range(LAYERS)]
        digest = self._fleet.registry.push(name, *layers)
        self._fleet.offer(name, uri=f"127.0.0.1:{self._line.port}/{name}:latest")
        return digest

    def install(self, name: str, workers: list[str], *, kill_leader: bool = False) -> tuple[float, float]:
        """Seconds until all (surviving) workers have it, and the images that left the registry."""
        digest = self._offer(name)
        self._fleet.wait_for(lambda: name in self._known(), f"{name} is offered")
        passed, began = self._line.passed_bytes, time.monotonic()
        self._fleet.begin(f"/api/backends/install/{name}", {"nodes": workers})
        left = list(workers)
        if kill_leader:
            half = passed + self._image_bytes / 2
            self._fleet.wait_for(lambda: self._line.passed_bytes > half, "half of the image is fetched", within_s=600)
            left.remove(self._kill_leader())
        for worker in left:
            self._fleet.wait_until_on(worker, name, digest, within_s=600)
        return time.monotonic() - began, (self._line.passed_bytes - passed) / self._image_bytes

    def _known(self) -> set[str]:
        return {
            entry["name"] for entry in self._fleet.admin().call("GET", "/api/backends/available").json()["backends"]
        }

    def _kill_leader(self) -> str:
        query = "SELECT name FROM nodes JOIN site_downloads ON node_id = nodes.id WHERE state = 'leading'"
        name: str = self._fleet.read_sql(query)[0][0]
        self._fleet.workers[name].kill()
        return name


def main() -> int:
    numbers = [float(word) for word in sys.argv[1:]] + [10.0, 200.0, 10.0][len(sys.argv) - 1 :]
    count, image_bytes, rate = int(numbers[0]), int(numbers[1] * 1e6), numbers[2] * 1e6
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR"), ignore_cleanup_errors=True) as name:
        directory = Path(name)
        nats, registry = Nats(directory / "nats"), OciRegistry(directory / "registry")
        line = SharedLine(registry.port, bytes_per_s=rate)
        fleet = Cluster(directory, nats, registry=registry)
        try:
            workers = [f"n{number:02}" for number in range(count)]
            admin = fleet.start_frontend()
            for worker in workers:
                fleet.start_worker(worker)
            approve(admin, *workers)
            runs = Runs(fleet, line, image_bytes)
            print(f"image of {image_bytes / 1e6:.0f} MB, registry at {rate / 1e6:.0f} MB/s")
            alone_s, images = runs.install("first", workers[:1])
            print(f"one worker: {alone_s:.1f} s, {images:.3f} images left the registry")
            all_s, all_images = runs.install("second", workers)
            print(f"{count} workers at once: {all_s:.1f} s ({all_s / alone_s:.2f} of one), {all_images:.3f} images")
            killed_s, images = runs.install("third", workers, kill_leader=True)
            print(f"leader killed half-way: {killed_s:.1f} s ({killed_s / alone_s:.2f} of one), {images:.3f} images")
            met = max(all_images, images) <= IMAGES_MOST
            met = met and all_s <= TIMES_MOST * alone_s and killed_s <= TIMES_MOST_KILLED * alone_s
            print("the goals are met" if met else "above the goals")
            return 0 if met else 1
        finally:
            fleet.stop()
            line.stop()
            registry.stop()
            nats.stop()


if __name__ == "__main__":
    sys.exit(main())
