"""The Pythons of this machine: Corral's own, and others for packages that do not support it."""

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from shutil import which

from packaging.markers import default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags, sys_tags

from corral.artifacts.pypi.wheels import base_interpreter, python_version

PROBE_WITHIN_S = 20.0
OLDEST, NEWEST = 8, 20
"""Minor versions of Python 3 that are named as alternatives."""
_PROBE = """
import json, os, sys, sysconfig
print(json.dumps({
    "path": os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable),
    "version": ".".join(map(str, sys.version_info[:3])),
    "implementation": sys.implementation.name,
    "platform": sysconfig.get_platform(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""
_EXECUTABLE = re.compile(r"python3\.[0-9]+\Z")


@dataclass(frozen=True)
class Interpreter:
    path: str
    version: str
    """With all three numbers."""
    own: bool = False
    """Whether Corral runs on it."""

    @property
    def minor(self) -> tuple[int, int]:
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    @cached_property
    def ranks(self) -> dict[Tag, int]:
        """By tag of a wheel that it can use; lower is better."""
        return {tag: rank for rank, tag in enumerate(sys_tags() if self.own else _tags(self.minor))}

    def markers(self) -> dict[str, str]:
        """The values of environment markers."""
        found = {name: str(value) for name, value in default_environment().items()}
        if not self.own:
            found["python_version"] = ".".join(map(str, self.minor))
            found["python_full_version"] = found["implementation_version"] = self.version
        return found


def own_interpreter() -> Interpreter:
    return Interpreter(base_interpreter(), python_version(), own=True)


def imagined_interpreters() -> list[Interpreter]:
    """Every version of Python that might be installed here, to tell which would do."""
    return [Interpreter("", f"3.{minor}.99") for minor in range(OLDEST, NEWEST + 1)]


def find_interpreters(places: Sequence[str]) -> list[Interpreter]:
    """The other Pythons of this machine, the newest first. A place is a name to look up on the PATH, a program, or a
    directory with programs `python3.N`. What is no usable Python is left out."""
    found: dict[tuple[int, int], Interpreter] = {}
    for program in _programs(places):
        interpreter = _probe(program)
        if interpreter is not None and interpreter.minor != sys.version_info[:2]:
            known = found.get(interpreter.minor)
            if known is None or interpreter.order > known.order:
                found[interpreter.minor] = interpreter
    return [found[minor] for minor in sorted(found, reverse=True)]


def _programs(places: Iterable[str]) -> Iterator[str]:
    for place in places:
        path = Path(place).expanduser()
        if "/" not in place:
            named = which(place)
            yield from [named] if named is not None else []
        elif path.is_dir():
            yield from sorted(str(one) for one in path.iterdir() if _EXECUTABLE.match(one.name))
        else:
            yield str(path)


@lru_cache(maxsize=64)
def _probe(program: str) -> Interpreter | None:
    """Asks a Python what it is. Only one that installs the same kind of files as Corral's own is of use."""
    try:
        done = subprocess.run(
            [program, "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_WITHIN_S,
            env={},
            check=True,
        )
        told = json.loads(done.stdout)
        fits = told["implementation"] == "cpython" and told["platform"] == sysconfig.get_platform()
        return Interpreter(told["path"], told["version"]) if fits and not told["free_threaded"] else None
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None


def _tags(minor: tuple[int, int]) -> Iterator[Tag]:
    platforms = list(platform_tags())
    name = f"cp{minor[0]}{minor[1]}"
    yield from cpython_tags(minor, abis=[name], platforms=platforms)
    yield from compatible_tags(minor, interpreter=name, platforms=platforms)
