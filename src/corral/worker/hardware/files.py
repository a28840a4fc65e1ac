"""Reads small kernel files below a root. A missing file is not a problem; other errors are collected as text."""

import errno
from pathlib import Path

_MOST_BYTES = 1 << 20  # the largest file is cpuinfo of a machine with hundreds of cores


class FileTree:
    """The root is `/` on a real machine. Read errors are collected, once per cause, in `problems`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.problems: list[str] = []

    def text(self, path: str) -> str | None:
        """The stripped content, or None. Also strips the zero byte at the end of device-tree strings."""
        try:
            with self.path(path).open("rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
                self.report(f"cannot read {path}: {problem.strerror or problem}")
            return None
        return content.decode(errors="replace").replace("\0", " ").strip()

    def number(self, path: str) -> int | None:
        """A decimal or hexadecimal (0x) number, or None. Other content is a problem."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return int(text, 0)
        except ValueError:
            self.report(f"cannot read {path}: {text[:40]!r} is not a number")
            return None

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty if it is missing."""
        try:
            return sorted(entry.name for entry in self.path(path).iterdir())
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.report(f"cannot list {path}: {problem.strerror or problem}")
            return []

    def exists(self, path: str) -> bool:
        try:
            return self.path(path).exists()
        except OSError as problem:
            self.report(f"cannot access {path}: {problem.strerror or problem}")
            return False

    def link_name(self, path: str) -> str | None:
        """The last component of a link's target, which for kernel devices is the device address."""
        try:
            return self.path(path).readlink().name
        except OSError:
            return None  # not a link, or absent: the caller has other ways to name the device

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
