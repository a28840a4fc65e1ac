"""What this machine can do to keep backends to their own files, and in which words that is told."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corral.worker.processes import confine as confine_program
from corral.worker.processes.mount_views import User, plan_view

IsolationSetting = Literal["auto", "required", "off"]
Level = Literal["full", "partial", "none"]

# Below the users that containers are given (subordinate ids begin at 100000), above those of people and of systemd.
# Where only some numbers exist, as in a container's own user namespace, systemd's range for such users is tried.
_SPANS = ("70000-99999", "61184-65519")
_PROBE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    landlock_abi: int = 0
    """0: the kernel has no Landlock."""
    mounts: bool = False
    """Whether a backend can be given a view of the disk of its own."""
    users: str | None = None
    """Numbers of users nobody else has, one for each backend; None where the worker may not become them."""
    closed: str | None = None
    """A directory on the way to the data directory that such users cannot walk through, and no view leads past: then
    backends run as the worker's user."""
    wanted: IsolationSetting = "auto"

    @property
    def level(self) -> Level:
        if self.wanted == "off":
            return "none"
        if self.landlock_abi and (self.users or self.landlock_abi >= confine_program.SIGNALS_SINCE_ABI):
            return "full"
        return "partial" if self.landlock_abi or self.users else "none"

    def describe(self) -> str:
        if self.wanted == "off":
            return f"Backends are not contained, by --backend-isolation=off: {_UNCONTAINED}."
        who = "as a user of its own" if self.users else "as the worker's user"
        if self.closed is not None:
            who += f" (for want of a way {self._way()})"
        if self.landlock_abi:
            text = f"Each backend runs {who} and reaches only its own files and its model's (Landlock)"
            if self.level == "partial":
                text += "; this kernel does not keep it from signalling other processes of that user (Linux 6.12 does)"
            return f"{text}."
        if self.users:
            return (
                "Each backend runs as a user of its own, without access to private files of others; this kernel has no"
                " Landlock, so it can read what every user of the machine may read."
            )
        why = f" Users of their own have no way {self._way()}." if self.closed is not None else ""
        return f"Backends are not contained: {_UNCONTAINED}.{why} {ADVICE}"

    def _way(self) -> str:
        return (
            f"through {self.closed} to the data directory, and this worker may not mount: choose a --data-dir that"
            " every user may walk to"
        )


_UNCONTAINED = "a backend can read everything the worker can, its identity, keys and other models included"
ADVICE = "Use Linux 5.13 or newer with Landlock switched on (`landlock` in /sys/kernel/security/lsm)."


def find_isolation(wanted: IsolationSetting, data_dir: Path) -> Isolation:
    """Blocking. Tried, not asked: what a kernel or a container allows shows only when it is done."""
    if wanted == "off" or not sys.platform.startswith("linux"):
        return Isolation(wanted=wanted)
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-I", "-S", confine_program.__file__, *_SPANS],
        capture_output=True,
        text=True,
        timeout=_PROBE_WITHIN_S,
        check=False,
    )
    abi, mounts, users = (*done.stdout.rstrip("\n").split(" "), "", "", "")[:3]
    closed = _closed_on_the_way(data_dir, users) if users and mounts != "1" else None
    return Isolation(
        landlock_abi=int(abi) if abi.isdigit() else 0,
        mounts=mounts == "1",
        users=users or None if closed is None else None,
        closed=closed,
        wanted=wanted,
    )


def _closed_on_the_way(data_dir: Path, users: str) -> str | None:
    """The data directory itself is opened by the worker, what is above it is not its own."""
    while not data_dir.exists():
        data_dir = data_dir.parent
    first = int(users.partition("-")[0])
    hidden = plan_view([str(data_dir.absolute())], User(first, first, ())).hidden
    return hidden[0] if hidden else None
