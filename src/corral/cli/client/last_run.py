"""The name and addresses of the last `corral up` in a data directory, so that a change is reported.

The node keeps its name. Each run may choose another listen address."""

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
        """The flags that give the next run the same addresses."""
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
    """The settings with the addresses of the last run, unless others are set."""
    if last is None:
        return settings
    kept = {"listen": last.listen, "bus_port": last.bus_port}
    return settings.model_copy(update={name: kept[name] for name in kept.keys() - settings.model_fields_set})


def describe_changes(last: LastRun, now: LastRun, *, name_given: bool, host_name: str) -> list[str]:
    """What the user should know about the differences from the last run."""
    changes = []
    if last.name != now.name:
        changes.append(f"This machine's node is renamed from {last.name} to {now.name}.")
    elif not name_given and now.name != host_name:
        changes.append(f"This machine's node keeps the name {now.name} of the last run (change it with --name).")
    if last.listen != now.listen:
        changes.append(
            f"The listen address changed from {last.listen} to {now.listen}: nodes that joined the old address cannot"
            f" reach this frontend. To use the old address: --listen {last.listen}"
        )
    return changes
