"""Confines a process before it executes a backend: sets its user, its mounts and its Landlock rules.

Runs in the shim's child just before the backend is executed, and once at the start of the worker as
`python -I -S confine.py FIRST-LAST` to detect what this machine supports. Uses only the standard library, like the
shim. Any failed step raises: a backend starts confined as planned, or not at all. See
docs/adr/0828-backends-are-confined.md.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

# Rights of Landlock, as in linux/landlock.h.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_REG, REFER, TRUNCATE = 1 << 8, 1 << 13, 1 << 14
_RIGHTS_BY_ABI = (
    0,
    (1 << 13) - 1,
    (1 << 14) - 1,
    (1 << 15) - 1,
)  # ioctl on devices (ABI 5) is not restricted: see `DEVICE`
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE

READ = READ_FILE | READ_DIR | EXECUTE  # programs and libraries
DATA = READ_FILE | READ_DIR  # weights
DEVICE = READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE
NAMES = READ_FILE | WRITE_FILE | TRUNCATE  # of threads
EXCHANGE = READ_FILE | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE  # files whose names are known; no listing
OWN = (1 << 15) - 1

SIGNALS_SINCE_ABI = 6
_SCOPES = 0b11  # abstract sockets and signals
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_CREATE_VERSION, _PATH_BENEATH = 1, 1

_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def landlock_abi() -> int:
    """0 if the kernel does not support Landlock or it is disabled."""
    try:
        return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_VERSION))))
    except AttributeError:
        return 0


def rights_of(abi: int) -> int:
    return _RIGHTS_BY_ABI[min(abi, len(_RIGHTS_BY_ABI) - 1)]


class Plan:
    """Confinement steps as text: `user UID GID[,GID...]`, `bare`, `rule RIGHTS PATH`, `hide PATH`, `link PATH`,
    `show PATH`, `tmp PATH`."""

    def __init__(self, steps: list[str]) -> None:
        self.user: list[int] = []
        self.bare = False
        self.rules: list[tuple[int, str]] = []
        self.hidden: list[str] = []
        self.links: list[str] = []
        self.shown: list[str] = []
        self.tmp = ""
        for step in steps:
            verb, _, rest = step.partition(" ")
            if verb == "user":
                self.user = [int(part) for part in rest.split(",")]
            elif verb == "bare":
                self.bare = True
            elif verb == "rule":
                rights, _, path = rest.partition(" ")
                self.rules.append((int(rights), path))
            elif verb == "tmp":
                self.tmp = rest
            else:
                {"hide": self.hidden, "link": self.links, "show": self.shown}[verb].append(rest)


def confine(steps: list[str]) -> None:
    """Call once, in a single-threaded process. Applies to everything it executes or starts afterwards."""
    plan = Plan(steps)
    ruleset = _open_ruleset(plan.rules) if plan.rules else None
    if plan.hidden or plan.tmp:
        _enter_view(plan)
    if plan.user:
        uid, gid, *others = plan.user
        os.setgroups(others)
        os.setgid(gid)
        os.setuid(uid)
    elif plan.bare:
        _drop_capabilities()
    if ruleset is not None:
        _done(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _done(_libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock_restrict_self")
        os.close(ruleset)
    elif plan.user or plan.bare:
        _done(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _open_ruleset(rules: list[tuple[int, str]]) -> int:
    abi = landlock_abi()
    handled = rights_of(abi)
    if not handled:
        raise OSError("Landlock is no longer available; restart the worker to detect isolation again")
    attributes = struct.pack("=QQQ", handled, 0, _SCOPES if abi >= SIGNALS_SINCE_ABI else 0)
    size = 8 if abi < 4 else 16 if abi < SIGNALS_SINCE_ABI else 24
    ruleset = _done(
        _libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)), "landlock_create_ruleset"
    )
    for rights, path in rules:
        _add_rule(ruleset, rights & handled, path)
    return ruleset


def _add_rule(ruleset: int, rights: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # removed meanwhile: a missing file needs no rule
        return
    try:
        if not _is_directory(place):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        added = _libc.syscall(
            _ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.c_char_p(rule), ctypes.c_uint32(0)
        )
        _done(added, f"landlock_add_rule {path}")
    finally:
        os.close(place)


def _is_directory(fd: int) -> bool:
    return (os.fstat(fd).st_mode & 0o170000) == 0o040000


def _enter_view(plan: Plan) -> None:
    """Enters a mount namespace in which directories that the user cannot traverse contain only what it needs."""
    umask = os.umask(0o022)
    _done(_libc.unshare(_NEWNS), "unshare")
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    links = [(path, os.readlink(path)) for path in plan.links]
    places = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in plan.shown]
    tmp = os.open(plan.tmp, os.O_PATH | os.O_CLOEXEC) if plan.tmp else None
    for path in plan.hidden:
        _mount("corral", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
    for path, target in links:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    for path, place in places:
        if _is_directory(place):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
        _mount(f"/proc/self/fd/{place}", path, None, _MS_BIND | _MS_REC)
        os.close(place)
    if tmp is not None:
        _mount(f"/proc/self/fd/{tmp}", "/tmp", None, _MS_BIND)
        os.close(tmp)
    os.umask(umask)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [os.fsencode(text) if text is not None else None for text in (source, target, kind, data)]
    done = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _done(done, f"mount on {target}")


def _drop_capabilities() -> None:
    """Drops root's capabilities. An empty bounding set prevents the next program from regaining them."""
    for number in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # no such capability, or no permission to drop any
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _try(step: object) -> bool:
    """Runs a step in a child process, because it cannot be undone. Whether it succeeded."""
    pid = os.fork()
    if pid == 0:
        try:
            step()  # type: ignore[operator]
        except BaseException:  # noqa: BLE001  any failure means unsupported
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _try_user(first: int, last: int) -> None:
    for uid in (last, first):
        os.setgroups([uid])
        os.setresgid(uid, uid, 0)
        os.setresuid(uid, uid, 0)
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def _try_mounts() -> None:
    _done(_libc.unshare(_NEWNS), "unshare")
    _mount(None, "/", None, _MS_REC | _MS_SLAVE)
    _mount("corral", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")


def _try_landlock() -> None:
    confine([f"rule {READ} /usr"])


def probe(spans: list[str]) -> str:
    """`ABI MOUNTS SPAN`: the usable Landlock version, whether mounts work, and the first usable range of user ids."""
    abi = landlock_abi() if _try(_try_landlock) else 0
    span, mounts = "", False
    if os.geteuid() == 0:
        mounts = _try(_try_mounts)
        for one in spans:
            first, _, last = one.partition("-")
            if _try(lambda first=first, last=last: _try_user(int(first), int(last))):
                span = one
                break
    return f"{abi} {int(mounts)} {span}"


if __name__ == "__main__":
    print(probe(sys.argv[1:]))  # noqa: T201  the output of this program
