"""Plans the confinement of one process: its user, its view of the file system and its Landlock rules."""

import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

import structlog

from corral.core.errors import InvalidInput
from corral.core.processes.process import ProcessSpec
from corral.settings.values import span_of
from corral.worker.processes.allowed_paths import Grant, Reach, gpu_devices, grant_of_names, plan_grants
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.mount_views import User, View, open_to_read, plan_view

log = structlog.get_logger()

_DEVICE_GROUPS = ("video", "render")
_TMP = "/tmp"


@dataclass(frozen=True, slots=True)
class Confinement:
    user: User | None
    steps: tuple[str, ...]
    """Input of `confine.py`, which runs in the process itself."""


def plan_confinement(
    spec: ProcessSpec, port: int, isolation: Isolation, reach: Reach, *, program: str, home: Path, tmp: Path
) -> Confinement:
    """Blocking. `home` and `tmp` are private directories of the process."""
    given = find_user(spec, port)
    if isolation.setting == "off":
        return Confinement(given, _user_steps(given))
    if isolation.setting == "required" and isolation.level == "none":
        raise InvalidInput(
            f"{spec.key} was not started: --backend-isolation is `required`, but this machine cannot confine backends."
            f" {isolation.describe()}"
        )
    grants = plan_grants(spec, reach, program=program, own=(str(home), str(tmp)))
    user = given or _own_user(isolation, port)
    view = View()
    if user is not None:
        user, view = _settle_user(spec, user, given, isolation, grants)
    if user is not None:
        _open_files(spec, user, reach)
    elif not isolation.landlock_abi and isolation.level != "none":
        _report_unconfined(spec, isolation)
    names = grant_of_names(os.geteuid() if user is None else user.uid, own=_is_own(user, spec))
    rules = [f"rule {one.rights} {one.path}" for one in (*grants, *names)] if isolation.landlock_abi else []
    alone = ["bare"] if user is None and rules and os.geteuid() == 0 else []
    own_tmp = [f"tmp {tmp}"] if user is not None and isolation.mounts and not _uses_tmp(grants) else []
    return Confinement(user, (*_user_steps(user), *alone, *rules, *view.steps(), *own_tmp))


def _report_unconfined(spec: ProcessSpec, isolation: Isolation) -> None:
    reason = (
        "this kernel has no Landlock, and a separate user cannot access all files it needs. Move its model files to"
        " a directory that every user can traverse."
    )
    if isolation.setting == "required":
        raise InvalidInput(f"{spec.key} was not started: --backend-isolation is `required`, but {reason}")
    log.warning("process.not_confined", process=spec.key, reason=reason)


def shared_group(isolation: Isolation, backend_user: str | None) -> int | None:
    """The group of all backends that run as another user than the worker, for files shared with backends."""
    if os.geteuid() != 0 or (backend_user is None and isolation.users is None):
        return None
    span = span_of(backend_user or isolation.users or "")
    return span[0] if span is not None else pwd.getpwnam(backend_user or "").pw_gid


def find_user(spec: ProcessSpec, port: int) -> User | None:
    """The user set by the administrator. From a range, the one derived from the port, which only one process has."""
    if spec.user is None:
        return None
    span = span_of(spec.user)
    if span is not None:
        if os.geteuid() != 0:
            raise InvalidInput(
                f"{spec.key}: only a worker that runs as root can start processes as other users. Run it as root or"
                " remove --backend-user."
            )
        return _user_of_port(span, port)
    try:
        entry = pwd.getpwnam(spec.user)
    except KeyError:
        raise InvalidInput(f"{spec.key}: this machine has no user {spec.user!r}. Correct --backend-user.") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise InvalidInput(
            f"{spec.key}: only a worker that runs as root can start a process as {spec.user!r}. Run it as root or"
            " remove --backend-user."
        )
    if os.geteuid() == entry.pw_uid:
        return None
    return User(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(spec.user, entry.pw_gid)))


def _is_own(user: User | None, spec: ProcessSpec) -> bool:
    """Whether no other process has the user. A named user may be shared."""
    return user is not None and (spec.user is None or span_of(spec.user) is not None)


def _own_user(isolation: Isolation, port: int) -> User | None:
    span = span_of(isolation.users or "")
    return _user_of_port(span, port) if span is not None and os.geteuid() == 0 else None


def _user_of_port(span: range, port: int) -> User:
    own = span[port % len(span)]
    return User(own, own, tuple(sorted({span[0], *_device_groups()})))


def _device_groups() -> set[int]:
    """The groups of the GPU device files, which a process needs to use the GPU."""
    named = {entry.gr_gid for entry in grp.getgrall() if entry.gr_name in _DEVICE_GROUPS}
    owning = set()
    for place in gpu_devices():
        inside = [os.path.join(place, name) for name in os.listdir(place)] if os.path.isdir(place) else [place]
        owning |= {os.stat(path).st_gid for path in inside if os.path.exists(path)}
    return named | (owning - {0})


def _settle_user(
    spec: ProcessSpec, user: User, given: User | None, isolation: Isolation, grants: list[Grant]
) -> tuple[User | None, View]:
    """Falls back to the worker's user if a separate user cannot access the files and mounts are not possible."""
    if isolation.mounts:
        return user, plan_view([one.path for one in grants], user)
    closed = plan_view([one.path for one in grants if one.needed], user).hidden
    if not closed:
        return user, View()
    if given is not None:
        raise InvalidInput(
            f"{spec.key}: its user cannot traverse {closed[0]}. Choose a --data-dir that every user can traverse, or"
            " remove --backend-user."
        )
    return None, View()


def _open_files(spec: ProcessSpec, user: User, reach: Reach) -> None:
    own = [spec.directory] if spec.directory is not None and not user.has(os.stat(spec.directory), 5) else []
    for path in (*spec.reads, *own):
        if os.path.exists(path) and any(path.startswith(f"{place}/") for place in reach.private):
            open_to_read(path, user)


def _user_steps(user: User | None) -> tuple[str, ...]:
    return (f"user {','.join(map(str, (user.uid, user.gid, *user.groups)))}",) if user is not None else ()


def _uses_tmp(grants: list[Grant]) -> bool:
    return any(one.path == _TMP or one.path.startswith(f"{_TMP}/") for one in grants)
