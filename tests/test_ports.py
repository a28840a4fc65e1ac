"""Only adapters touch the disk. Ruff refuses modules and functions; the methods of a path are looked for here."""

import ast
import gc
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Names that a path has and nothing else of ours: `exists`, `open`, `stat` and `touch` would find too much.
TOUCHES_DISK = {
    *("chmod", "glob", "hardlink_to", "is_dir", "is_file", "iterdir", "mkdir", "read_bytes", "read_text", "readlink"),
    *("rglob", "rmdir", "symlink_to", "unlink", "write_bytes", "write_text"),
}
# The artifact library is the adapter for fetching onto the disk, as a whole, and its command line works on files.
ADAPTERS = ["src/corral/artifacts/*", "src/corral/cli/commands/artifacts.py"]


def _adapters() -> list[str]:
    ignores = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    patterns = [*ADAPTERS]
    for pattern, rules in ignores.items():
        if "TID251" in rules:
            head, brace, rest = pattern.partition("{")
            inner, _, tail = rest.partition("}")
            patterns += [head + name + tail for name in inner.split(",")] if brace else [pattern]
    return patterns


def _parse(source: str) -> ast.AST:
    """Not while garbage is collected: Python 3.11 fails where the traceback of a finaliser is formatted in between,
    which parses too."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


def _touching(source: str) -> list[str]:
    found = []
    for node in ast.walk(_parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in TOUCHES_DISK:
                found.append(f"line {node.lineno}: {name}()")
            case ast.Call(func=ast.Name(id="open")):
                found.append(f"line {node.lineno}: open()")
    return found


def _plain_modules() -> list[str]:
    adapters = _adapters()
    modules = (str(path.relative_to(ROOT)) for path in (ROOT / "src" / "corral").rglob("*.py"))
    return sorted(name for name in modules if not any(fnmatch(name, pattern) for pattern in adapters))


@pytest.mark.parametrize("module", _plain_modules())
def test_only_adapters_touch_the_disk(module: str) -> None:
    assert _touching((ROOT / module).read_text()) == []


def test_the_search_finds_what_it_looks_for() -> None:
    source = "def f(p):\n    open(p)\n    return (p / 'x').read_text()"
    assert _touching(source) == ["line 2: open()", "line 3: read_text()"]
