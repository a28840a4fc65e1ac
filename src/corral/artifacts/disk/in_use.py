"""Which directories processes run from, so that nothing is removed under a running backend."""

from collections.abc import Collection
from pathlib import Path

import psutil


def paths_in_use(root: Path) -> set[Path]:
    """Every path below `root` that a process executes, works in, was started with, or has loaded code from."""
    prefix = str(root.resolve()) + "/"
    found: set[Path] = set()
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                texts = [process.exe(), process.cwd(), *process.cmdline()]
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or not ours to see; another user's process does not run from our directories
        texts += _mapped(process.pid)
        found |= {Path(text) for text in texts if text.startswith(prefix)}
    return found


def is_used(path: Path, used: Collection[Path]) -> bool:
    """Whether one of the paths in use is `path` or lies below it."""
    home = path.resolve()
    return any(candidate == home or home in candidate.parents for candidate in used)


def _mapped(pid: int) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [line.split(maxsplit=5)[5] for line in lines if line.count(" ") >= 5 and "/" in line]
