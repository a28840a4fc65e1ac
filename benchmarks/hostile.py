"""60 s of hostile traffic beside 200 requests/s and an install on five nodes: who fails, and what it costs in memory.

python benchmarks/hostile.py [--seconds 60] [--idle 10000] [--per-s 200]

Nine of ten requests are inference through the gateway: llama.cpp with a model of half a megabyte, on one of the nodes.
They are sent at a fixed rate, whatever the answers to earlier ones take. Everything runs on this machine, the attackers
too; the load it has is told. Ends with 0 when all promises held, 1 when one did not, 2 when the machine was too busy.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness.cluster import Cluster
from harness.engine import pull_engine
from harness.hostile_traffic import Witness, withstand
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.tiny_model import Shelf, tiny_weights

LATE_S = 2.0
"""A sender that is later than this measures the machine, not the frontend."""


def measure(directory: Path, options: argparse.Namespace) -> tuple[Witness, str]:
    """What happened, and the frontend's log."""
    pull_engine(directory / "engine")
    shelf = Shelf(tiny_weights(directory).read_bytes())
    nats, registry = Nats(directory / "nats"), OciRegistry(directory / "registry")
    fleet = Cluster(directory, nats, None, registry=registry)
    try:
        witness = withstand(
            fleet, directory / "engine", shelf, for_s=options.seconds, idle=options.idle, per_s=options.per_s
        )
        return witness, fleet.frontends["a"].output()
    finally:
        fleet.stop()
        registry.stop()
        nats.stop()
        shelf.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--idle", type=int, default=10_000, help="connections that say nothing, or half of something")
    parser.add_argument("--per-s", type=int, default=200, help="requests of everybody else")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="corral-hostile-"))
    load_before = os.getloadavg()[0]
    try:
        witness, log = measure(directory, options)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(witness.told())
    print(f"  load of this machine ({os.cpu_count()} cores): {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
    for failure in sorted(set(witness.failures))[:10]:
        print("  failed:", failure)
    if witness.calls.latest_send_s > LATE_S:
        print("  Even sending was late: this machine has too much else to do for these figures to say anything.")
        sys.exit(2)
    crashes = [line for line in log.splitlines() if "Traceback" in line or "crashed" in line]
    print(f"  {len(crashes)} crashes in the frontend's log", *crashes[:5])
    kept = not witness.failures and not witness.unhealthy and witness.grown_mb < 100 and not crashes
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
