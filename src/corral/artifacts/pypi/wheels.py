"""Wheels in a private environment: where their files go and how the environment gets its interpreter.

The environment is a virtual environment in all that Python looks at (`pyvenv.cfg`, `bin/python`, `site-packages`),
so engines that start more interpreters find themselves again. Corral writes it file by file and runs nothing of the
packages: no set-up code, no `.pth` code, no compiler.
"""

import configparser
import os
import sys
from pathlib import Path

from corral.artifacts.content.manifest import DESCRIPTIONS, LOCALAI_LAUNCHER
from corral.artifacts.errors import UnsafeArchive, disk_errors
from corral.artifacts.unpack.tree import Parts

_DATA_SCHEMES = ("purelib", "platlib", "scripts", "data", "headers")
_OF_THE_ENVIRONMENT = ("bin", "pyvenv.cfg", *DESCRIPTIONS, LOCALAI_LAUNCHER)
"""Files that Corral puts at the top of an environment, or reads there to know how to start it."""
_RUN_BY_EVERY_INTERPRETER = ("sitecustomize", "usercustomize")


def base_interpreter() -> str:
    """The interpreter below the virtual environment that Corral itself runs in."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def site_packages(version: str = "") -> str:
    """Of this version of Python; by default of Corral's own."""
    major, minor, *_ = (version or python_version()).split(".")
    return f"lib/python{major}.{minor}/site-packages"


def wheel_path(parts: Parts, content: bytes, *, version: str = "") -> tuple[Parts, bytes | None] | None:
    """The path of a wheel's member in an environment for this version of Python, with new content if it is changed.
    None leaves it out."""
    home = tuple(site_packages(version).split("/"))
    target = _target(parts, home)
    if target is None or target[: len(home)] != home or len(target) == len(home):
        return (target, None) if target is not None else None
    inside = target[len(home) :]
    if inside[0].partition(".")[0] in _RUN_BY_EVERY_INTERPRETER:
        return None
    if len(inside) == 1 and inside[0].endswith(".pth"):
        safe = contained_pth(content)
        return (target, safe) if safe else None
    return target, None


def _target(parts: Parts, home: Parts) -> Parts | None:
    if not parts[0].endswith(".data") or len(parts) < 3 or parts[1] not in _DATA_SCHEMES:
        return home + parts
    scheme, rest = parts[1], parts[2:]
    match scheme:
        case "purelib" | "platlib":
            return home + rest
        case "scripts":
            return ("bin", *rest)
        case "data":
            if rest[0] in _OF_THE_ENVIRONMENT or _is_interpreters_own(rest):
                raise UnsafeArchive(f"A wheel's data file would replace {'/'.join(rest)[:120]!a} in the environment.")
            return rest
        case _:
            return None  # headers are of use to compilers only


def _is_interpreters_own(parts: Parts) -> bool:
    """`lib/python3.11/...` is reserved for packages. Libraries directly in `lib` are common (MKL, TBB)."""
    return len(parts) > 1 and parts[0].startswith("lib") and parts[1].startswith("python")


def contained_pth(content: bytes) -> bytes:
    """The lines of a `.pth` file that name a directory inside site-packages. Lines of code are dropped.

    Lines end where they end for Python 3.13 and later, which decodes the whole file first: also at a form feed or at
    U+2028. What is not UTF-8 is decoded by the machine's locale there, so nothing of it can be judged here."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return b""
    kept = [text for line in lines if (text := line.strip().strip("\ufeff")) and _names_a_directory_inside(text)]
    return "\n".join([*kept, ""]).encode() if kept else b""


def _names_a_directory_inside(text: str) -> bool:
    if text.startswith(("#", "/", "\\")) or text.split(maxsplit=1)[0] == "import" or "\0" in text:
        return False
    return ".." not in text.replace("\\", "/").split("/")


def finish_environment(root: Path, final: Path, *, interpreter: str, version: str) -> None:
    """Turns a tree of wheels into an environment of an interpreter. `final` is its later path, which scripts must
    contain."""
    with disk_errors("building the environment"):
        bin_dir = root / "bin"
        bin_dir.mkdir(exist_ok=True)
        for name in ("python", "python3"):
            (bin_dir / name).unlink(missing_ok=True)
            (bin_dir / name).symlink_to(interpreter)
        (root / "pyvenv.cfg").write_text(
            f"home = {Path(interpreter).parent}\ninclude-system-site-packages = false\nversion = {version}\n"
        )
        _rewrite_scripts(bin_dir, final)
        for entry_points in sorted((root / site_packages(version)).glob("*.dist-info/entry_points.txt")):
            _write_entry_points(entry_points, bin_dir, final)


def _shebang(final: Path) -> str:
    return f"#!{final}/bin/python\n"


def _rewrite_scripts(bin_dir: Path, final: Path) -> None:
    """Replaces `#!python` by the environment's interpreter, in a copy, because the original is shared."""
    for script in sorted(bin_dir.iterdir()):
        if script.is_symlink() or not script.is_file():
            continue
        content = script.read_bytes()
        first, newline, rest = content.partition(b"\n")
        if first.startswith(b"#!python"):
            content = _shebang(final).encode() + rest if newline else _shebang(final).encode()
        script.unlink()
        script.write_bytes(content)
        script.chmod(0o755)


class _CaseKeepingParser(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _write_entry_points(entry_points: Path, bin_dir: Path, final: Path) -> None:
    parser = _CaseKeepingParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string(entry_points.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise UnsafeArchive(f"{entry_points.parent.name} has unreadable entry points.") from error
    if not parser.has_section("console_scripts"):
        return
    for name, target in parser.items("console_scripts"):
        module, _, function = target.partition("[")[0].strip().partition(":")
        if (
            "/" in name
            or name in ("python", "python3")
            or not all(part.isidentifier() for part in [*module.split("."), *function.split(".")])
        ):
            raise UnsafeArchive(f"{entry_points.parent.name} has the unusable entry point {name[:80]!a}.")
        script = bin_dir / name
        script.unlink(missing_ok=True)
        root = function.split(".")[0]
        script.write_text(
            f"{_shebang(final)}import sys\nfrom {module} import {root}\n"
            f"if __name__ == '__main__':\n    sys.exit({function}())\n"
        )
        script.chmod(0o755)
