"""`python -m corral.worker.hardware [directory]`: prints the detected hardware as JSON."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from corral.core.nodes.capability import pick_capability
from corral.worker.hardware.reader import Roots, read_capability_facts, read_hardware, read_usage


def main(arguments: list[str]) -> None:
    roots = Roots(disk=Path(arguments[0] if arguments else "."))
    hardware = read_hardware(roots)
    capability = pick_capability(read_capability_facts(roots, hardware, os.environ))
    report = {
        "capability": asdict(capability),
        "hardware": asdict(hardware),
        "vram_total_bytes": hardware.vram_total_bytes,
        "usage": asdict(read_usage(roots, hardware)),
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
