"""Reading small kernel files below a root. Absent is an answer; whatever else goes wrong is told in words."""

import errno
from pathlib import Path

_MOST_BYTES = 1 << 20  # cpuinfo of a machine with hundreds of cores is the largest file we read


class FileTree:
    """The root is `/` on a real machine. What could not be read is collected, once per cause, in `problems`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.problems: list[str] = []

    def text(self, path: str) -> str | None:
        """The stripped content, or None. Device-tree strings end with a zero byte, which goes as well."""
        try:
            with self.path(path).open("rb") as file:
                content = file.read(_MOST_BYTES)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
                self.report(f"cannot read {path}: {problem.strerror or problem}")
            return None
        return content.decode(errors="replace").replace("\0", " ").strip()

    def number(self, path: str) -> int | None:
        """A decimal or 0x number, or None. A file with something else in it is a problem."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return int(text, 0)
        except ValueError:
            self.report(f"cannot read {path}: {text[:40]!r} is not a number")
            return None

    def names(self, path: str) -> list[str]:
        """What a directory holds, sorted; nothing when it is absent."""
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
            self.report(f"cannot look for {path}: {problem.strerror or problem}")
            return False

    def link_name(self, path: str) -> str | None:
        """The last part of where a link leads. The kernel writes a device's address there."""
        try:
            return self.path(path).readlink().name
        except OSError:
            return None  # not a link, or absent: the caller has other ways to name the device

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
