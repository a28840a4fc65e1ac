"""Makes a private Python environment from a lock file, and shows what it does. Standard library only.

Shared by `./corral` (what users run) and `./dev` (what developers run).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """Says what was tried, what stood in the way and what to do."""


class Step:
    """One line per step: what, how long, and a sign of life while it lasts."""

    def __init__(self, number: int, total: int, what: str) -> None:
        self._label = f"[{number}/{total}] {what}"
        self._live = sys.stderr.isatty()
        self._done = threading.Event()
        self._began = time.monotonic()

    def __enter__(self) -> Step:
        if self._live:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()
        else:
            print(f"{self._label} ...", file=sys.stderr, flush=True)
        return self

    def _tick(self) -> None:
        while not self._done.wait(0.2):
            took = time.monotonic() - self._began
            print(f"\r{self._label} ... {took:4.0f} s", end="", file=sys.stderr, flush=True)

    def __exit__(self, kind: object, *_: object) -> None:
        self._done.set()
        took = time.monotonic() - self._began
        if self._live:
            self._thread.join()
            print("\r", end="", file=sys.stderr)
        word = "failed" if kind else "done"
        print(f"{self._label}: {word} in {took:.1f} s", file=sys.stderr, flush=True)


def fingerprint(*paths: Path) -> str:
    """Of file contents for single files; of names, sizes and times for trees, which is enough and fast."""
    digest = hashlib.sha256(sys.version.encode())
    for path in paths:
        if path.is_file():
            digest.update(path.read_bytes())
            continue
        for directory, names, files in os.walk(path):
            names[:] = sorted(name for name in names if name not in ("node_modules", "dist", "static", "__pycache__"))
            for name in sorted(files):
                facts = os.stat(os.path.join(directory, name))
                digest.update(f"{directory}/{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def is_current(stamp: Path, value: str) -> bool:
    return stamp.exists() and stamp.read_text() == value


def environment_python(env: Path) -> Path:
    return env / "bin" / "python"


def make_environment(env: Path) -> None:
    if env.exists():
        shutil.rmtree(env)
    try:
        venv.create(env, with_pip=True, symlinks=True)
    except (subprocess.CalledProcessError, OSError, SystemExit) as error:
        shutil.rmtree(env, ignore_errors=True)
        version = f"python3.{sys.version_info.minor}"
        raise Failed(
            f"cannot make a private Python environment with {sys.executable} ({error}).\n"
            f"On Debian and Ubuntu its `venv` module is a package of its own: apt-get install {version}-venv"
        ) from error


def pip(env: Path, *arguments: str, log: Path) -> None:
    """Quiet when all is well; the whole output in `log`, its end on the screen when not."""
    command = [
        str(environment_python(env)), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments
    ]  # fmt: skip
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        code = subprocess.call(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise Failed(
            f"pip {' '.join(arguments[:3])} ... ended with {code}:\n{tail}\n(whole log: {log})\n"
            "Is a package index within reach? After that is mended, run the same command again: it goes on from here."
        )


def has_node() -> bool:
    """A Node that can build the web UI, as hatch_build.py has it (^20.19 or >=22.12), and npm with it."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    try:
        text = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=10).stdout
        version = tuple(int(part) for part in text.strip().lstrip("v").split(".")[:2])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return (20, 19) <= version < (21,) or version >= (22, 12)


def locked(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.lock"
