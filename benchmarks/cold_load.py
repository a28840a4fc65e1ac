"""A crowd at a cold model: so many requests at once for SmolLM2, which no machine has loaded.

    python benchmarks/cold_load.py [requests]

One install, one load, everybody served; told is the spread between the model being ready and the last answer's start.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from harness.cluster import ADMIN_KEY, Cluster
from harness.nats import Nats
from harness.traffic import post_chat


async def ask(url: str, began: float) -> tuple[str, float]:
    try:
        posted = await post_chat(url, ADMIN_KEY, "smollm2", within_s=600, stream=True)
    except (OSError, TimeoutError, EOFError) as error:
        return repr(error), time.monotonic() - began
    fate = "200" if posted.status == 200 else f"{posted.status} {posted.body[-160:]}"
    return fate, posted.first_byte_s - began


async def crowd(url: str, count: int) -> tuple[list[tuple[str, float]], float]:
    began = time.monotonic()
    return list(await asyncio.gather(*(ask(url, began) for _ in range(count)))), began


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        nats = Nats(directory)
        cluster = Cluster(directory, nats)
        try:
            admin = cluster.start_frontend("a", "--model-load-wait", "300s", "--queue-wait", "300s")
            cluster.start_worker("w1")
            assert admin.call("POST", "/api/models/install", body={"name": "smollm2"}).status == 201
            wall_began = time.time()
            results, _ = asyncio.run(crowd(admin.url, count))
            replicas = cluster.replicas("smollm2")
            decisions = admin.call("GET", "/api/why/models/smollm2").json()["decisions"]
            log = (directory / "w1.log").read_text()
        finally:
            cluster.stop()
            nats.stop()
    fates: dict[str, int] = {}
    for fate, _ in results:
        fates[fate[:60]] = fates.get(fate[:60], 0) + 1
    ready_s = _seconds(replicas[0]["ready_at"]) - wall_began
    starts = sorted(first for fate, first in results if fate == "200")
    print(f"{count} requests at once: {fates}")
    print(f"installs {log.count('artifact.installed')}, process starts {log.count('process.launched')},")
    print(f"placements {len(decisions)}, replicas {len(replicas)}")
    if starts:
        print(
            f"ready after {ready_s:.2f} s; answers began {starts[0] - ready_s:+.2f} to {starts[-1] - ready_s:+.2f} s"
            f" around that, half of them by {starts[len(starts) // 2] - ready_s:+.2f} s"
        )


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main()
