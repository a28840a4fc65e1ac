"""How long `corral up` takes until its node is healthy, once it is set up, and how much memory all of it has then.

The first start makes keys and a database; the others find them, as every later day does. Each is asked from outside:
from the command until `/api/nodes` says healthy. Memory is resident: parent, bus, frontend and worker.

    ./dev bench start
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.up import Up
from harness.waiting import wait_until

STARTS = 5
LIMIT_S = 4.0
LIMIT_MB = 200.0


def start(directory: Path) -> tuple[float, float, dict[str, float]]:
    """Seconds, seconds of processor, and megabytes by part."""
    began = time.perf_counter()
    up = Up(directory)
    try:
        wait_until(lambda: up.admin.nodes()["first"]["status"] == "healthy", what="healthy", within_s=60, every_s=0.02)
        took = time.perf_counter() - began
        up.wait_ready()
        wait_until(up.is_small, what="the supervisor alone is left of `corral up`", within_s=20, every_s=0.02)
        parts = {"up": psutil.Process(up.program.pid), **up.children()}
        time.sleep(1)  # until the supervisor has loaded what it needs
        sizes = {name: process.memory_info().rss / 1e6 for name, process in parts.items()}
        cpu = sum(process.cpu_times().user + process.cpu_times().system for process in parts.values())
    finally:
        up.program.stop()
    return took, cpu, sizes


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        runs = [start(Path(name)) for _ in range(STARTS)]
    first, *later = [took for took, _, _ in runs]
    sizes = runs[-1][2]
    total, median = sum(sizes.values()), statistics.median(later)
    print(f"first start to healthy        {first:.2f} s")
    print(f"later starts, median / max    {median:.2f} / {max(later):.2f} s (limit {LIMIT_S:g} s)")
    print(f"processor time of a start     {statistics.median(cpu for _, cpu, _ in runs[1:]):.2f} s, all parts together")
    print(f"memory, all together          {total:.0f} MB (limit {LIMIT_MB:g} MB): ", end="")
    print(", ".join(f"{part} {size:.0f}" for part, size in sizes.items()))
    if median > LIMIT_S or total > LIMIT_MB:
        sys.exit("over the limit")


if __name__ == "__main__":
    main()
