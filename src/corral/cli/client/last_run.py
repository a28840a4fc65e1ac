"""What the last `corral up` on a data directory was called with, so that the next one does not silently become another.

A node's name is kept; where the API listens is a choice of each run, but a change of it is told."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from corral.settings.roles import UpSettings
from corral.system import Disk

FILE = "up.json"
_DEFAULTS = {name: field.default for name, field in UpSettings.model_fields.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    name: str
    listen: str
    bus_port: int

    def flags(self) -> list[str]:
        """With which a next run has the same addresses."""
        kept = {"listen": self.listen, "bus_port": self.bus_port}
        changed = {field: value for field, value in kept.items() if value != _DEFAULTS[field]}
        return [word for field, value in changed.items() for word in (f"--{field.replace('_', '-')}", str(value))]


def read_last_run(disk: Disk, data_dir: Path) -> LastRun | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = {"bus_port": _DEFAULTS["bus_port"], **json.loads(disk.read(data_dir / FILE) or b"null")}
        return LastRun(name=str(kept["name"]), listen=str(kept["listen"]), bus_port=int(kept["bus_port"]))
    return None


def write_last_run(disk: Disk, data_dir: Path, run: LastRun) -> None:
    disk.write(data_dir / FILE, json.dumps(asdict(run)).encode())


def as_before(settings: UpSettings, last: LastRun | None) -> UpSettings:
    """With the addresses of the last run, where nobody has set others since."""
    if last is None:
        return settings
    kept = {"listen": last.listen, "bus_port": last.bus_port}
    return settings.model_copy(update={name: kept[name] for name in kept.keys() - settings.model_fields_set})


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
