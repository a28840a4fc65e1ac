"""60 s of hostile traffic beside 200 requests/s and an install on five nodes: who fails, and what it costs in memory.

python benchmarks/hostile.py [--seconds 60] [--idle 10000]
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness.fleet import OperationFleet
from harness.hostile_traffic import withstand
from harness.nats import Nats
from harness.oci_registry import OciRegistry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--idle", type=int, default=10_000, help="connections that say nothing, or half of something")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="corral-hostile-"))
    nats, registry = Nats(directory / "nats"), OciRegistry(directory / "registry")
    fleet = OperationFleet(directory, nats, None, registry)
    try:
        witness = withstand(fleet, for_s=options.seconds, idle=options.idle)
        log = fleet.frontends["a"].output()
    finally:
        fleet.stop()
        registry.stop()
        nats.stop()
        shutil.rmtree(directory, ignore_errors=True)
    print(witness.told())
    for failure in sorted(set(witness.failures))[:10]:
        print("  failed:", failure)
    crashes = [line for line in log.splitlines() if "Traceback" in line or "crashed" in line]
    print(f"  {len(crashes)} crashes in the frontend's log", *crashes[:5])
    kept = not witness.failures and not witness.unhealthy and witness.grown_mb < 100 and not crashes
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
