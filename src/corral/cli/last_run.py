"""What the last `corral up` on a data directory was called with, so that the next one does not silently become another.

A node's name is kept; where the API listens is a choice of each run, but a change of it is told."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from corral.system import Disk

FILE = "up.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    name: str
    listen: str


def read_last_run(disk: Disk, data_dir: Path) -> LastRun | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(disk.read(data_dir / FILE) or b"null")
        return LastRun(name=str(kept["name"]), listen=str(kept["listen"]))
    return None


def write_last_run(disk: Disk, data_dir: Path, run: LastRun) -> None:
    disk.write(data_dir / FILE, json.dumps(asdict(run)).encode())


def tell_changes(last: LastRun, now: LastRun, *, name_given: bool, host_name: str) -> list[str]:
    """What somebody who starts it again should know."""
    told = []
    if last.name != now.name:
        told.append(f"This machine's node was called {last.name}; it is called {now.name} from now on.")
    elif not name_given and now.name != host_name:
        told.append(f"This machine's node keeps its name {now.name}, as in the last run (--name changes it).")
    if last.listen != now.listen:
        told.append(
            f"The last run listened on {last.listen}, this one listens on {now.listen}: machines that joined there"
            f" do not find it here. To go on as before: --listen {last.listen}"
        )
    return told
