"""Detects and describes how far this machine can confine backends to their own files."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corral.worker.processes import confine as confine_program
from corral.worker.processes.mount_views import User, plan_view

IsolationSetting = Literal["auto", "required", "off"]
Level = Literal["full", "partial", "none"]

# Below the subordinate ids of containers (from 100000), above regular and systemd users. The second range, systemd's
# range for dynamic users, is tried where only some ids exist, as in the user namespace of a container.
_SPANS = ("70000-99999", "61184-65519")
_PROBE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    landlock_abi: int = 0
    """0 if the kernel does not support Landlock."""
    mounts: bool = False
    """Whether a backend can get its own mount namespace."""
    users: str | None = None
    """A range of unused user ids, one per backend; None if the worker may not switch to them."""
    closed: str | None = None
    """A parent of the data directory that such users cannot traverse, if mounts are not possible: backends then run
    as the worker's user."""
    setting: IsolationSetting = "auto"

    @property
    def level(self) -> Level:
        if self.setting == "off":
            return "none"
        if self.landlock_abi and (self.users or self.landlock_abi >= confine_program.SIGNALS_SINCE_ABI):
            return "full"
        return "partial" if self.landlock_abi or self.users else "none"

    def describe(self) -> str:
        if self.setting == "off":
            return f"Backends are not confined (--backend-isolation=off): {_UNCONFINED}."
        who = "as its own user" if self.users else "as the worker's user"
        if self.closed is not None:
            who += f" ({self._closed_advice()})"
        if self.landlock_abi:
            text = f"Each backend runs {who} and can access only its own files and its model's files (Landlock)"
            if self.level == "partial":
                text += "; it can signal other processes of that user (Linux 6.12 and newer prevent this)"
            return f"{text}."
        if self.users:
            return (
                "Each backend runs as its own user, without access to private files of other users; this kernel has no"
                " Landlock, so it can read files that every user of the machine can read."
            )
        why = f" Separate users are not possible: {self._closed_advice()}." if self.closed is not None else ""
        return f"Backends are not confined: {_UNCONFINED}.{why} {ADVICE}"

    def _closed_advice(self) -> str:
        return (
            f"other users cannot traverse {self.closed} to the data directory, and this worker may not mount; choose a"
            " --data-dir that every user can reach"
        )


_UNCONFINED = "a backend can read everything the worker can read, including its identity, keys and other models"
ADVICE = "Use Linux 5.13 or newer with Landlock enabled (`landlock` in /sys/kernel/security/lsm)."


def find_isolation(setting: IsolationSetting, data_dir: Path) -> Isolation:
    """Blocking. Tries each mechanism: what a kernel or a container allows cannot be queried reliably."""
    if setting == "off" or not sys.platform.startswith("linux"):
        return Isolation(setting=setting)
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-I", "-S", confine_program.__file__, *_SPANS],
        capture_output=True,
        text=True,
        timeout=_PROBE_WITHIN_S,
        check=False,
    )
    abi, mounts, users = (*done.stdout.rstrip("\n").split(" "), "", "", "")[:3]
    closed = _find_closed_parent(data_dir, users) if users and mounts != "1" else None
    return Isolation(
        landlock_abi=int(abi) if abi.isdigit() else 0,
        mounts=mounts == "1",
        users=users or None if closed is None else None,
        closed=closed,
        setting=setting,
    )


def _find_closed_parent(data_dir: Path, users: str) -> str | None:
    """The first parent of the data directory that other users cannot traverse. The worker cannot change parents."""
    while not data_dir.exists():
        data_dir = data_dir.parent
    first = int(users.partition("-")[0])
    hidden = plan_view([str(data_dir.absolute())], User(first, first, ())).hidden
    return hidden[0] if hidden else None
