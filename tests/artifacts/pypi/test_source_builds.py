"""Packages that come as source only: refused, unless an operator allows to build them. The builds are real ones, by pip
in a child process; the packages bring their own tiny build backend, so that no build requirement is fetched."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import threading
import venv
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.manifest import Manifest
from corral.artifacts.errors import ArtifactError, BuildFailed, Cancelled, DigestMismatch, NoPlatformFits
from corral.artifacts.host_settings import settings_from_environment
from corral.artifacts.install.installer import Installer
from corral.artifacts.pypi.source_builds import SourceBuilds
from corral.artifacts.settings import PypiSettings
from corral.cli.commands.artifacts import artifacts_group
from corral.core.errors import InvalidSetting
from harness.artifacts import FakeRegistry, install, leftovers, member, tar_of, wait_until

ENGINE = Manifest(protocol="openai", start=("{python}", "-m", "engine"))

BACKEND = """
import os, sys, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    facts = {}
    exec(open("body.py").read(), {"facts": facts})
    filename = f"NAME-{facts.get('version', 'VERSION')}-py3-none-any.whl"
    info = "NAME-VERSION.dist-info"
    with zipfile.ZipFile(os.path.join(directory, filename), "w") as wheel:
        wheel.writestr("NAME.py", open("NAME.py").read() + f"\\nBUILT_BY = {os.getpid()}\\n")
        wheel.writestr(f"{info}/METADATA", open("METADATA").read())
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return filename
"""


def sdist(
    name: str,
    version: str,
    *,
    body: str = "",
    requires: tuple[str, ...] = (),
    build_requires: tuple[str, ...] = (),
    ending: str = ".tar.gz",
) -> tuple[str, bytes]:
    """A source package. `body` runs when it is built. Built twice, its wheels differ, as real ones do."""
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    files = {
        "pyproject.toml": f'[build-system]\nrequires = {list(build_requires)}\nbuild-backend = "backend"\n'
        'backend-path = ["."]\n',
        "PKG-INFO": "\n".join(metadata),
        "METADATA": "\n".join(metadata),
        "backend.py": BACKEND.replace("NAME", name).replace("VERSION", version),
        "body.py": body,
        f"{name}.py": f"WORD = 'source {version}'",
    }
    home = f"{name}-{version}"
    if ending == ".zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, text in files.items():
                archive.writestr(f"{home}/{path}", text)
        return f"{home}{ending}", buffer.getvalue()
    packed = tar_of(*(member(f"{home}/{path}", text.encode()) for path, text in files.items()))
    return f"{home}{ending}", gzip.compress(packed, mtime=0)


def wheel(name: str, version: str) -> tuple[str, bytes]:
    info = f"{name}-{version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.py", f"WORD = 'wheel {version}'")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def serve(registry: FakeRegistry, *files: tuple[str, bytes], promised: Mapping[str, bytes] | None = None) -> str:
    """An index. `promised` names other bytes whose hash the index claims for a file."""
    projects: dict[str, list[dict[str, Any]]] = {}
    for filename, data in files:
        registry.pages[f"/files/{filename}"] = (data, {})
        claimed = hashlib.sha256((promised or {}).get(filename, data)).hexdigest()
        projects.setdefault(filename.split("-")[0], []).append(
            {"filename": filename, "url": f"/files/{filename}", "size": len(data), "hashes": {"sha256": claimed}}
        )
    for project, offered in projects.items():
        page = json.dumps({"meta": {"api-version": "1.1"}, "files": offered}).encode()
        registry.pages[f"/simple/{project}/"] = (page, {"Content-Type": "application/vnd.pypi.simple.v1+json"})
    return f"{registry.url}/simple"


def allowed(index_url: str, **changes: Any) -> PypiSettings:
    return PypiSettings(index_url=index_url, allow_source_builds=True, **changes)


def word(path: Path, module: str = "engine") -> str:
    code = f"import {module}; print({module}.WORD)"
    return subprocess.run([path / "bin/python", "-Ic", code], check=True, capture_output=True, text=True).stdout.strip()


def fetched(registry: FakeRegistry, filename: str) -> int:
    return sum(1 for method, path, _ in registry.requests if method == "GET" and path == f"/files/{filename}")


def test_a_source_package_is_refused_and_the_setting_that_would_allow_it_is_named(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    source = sdist("engine", "1.0")
    installer = make_installer(pypi=PypiSettings(index_url=serve(registry, source)))
    with pytest.raises(NoPlatformFits, match="only source packages") as refused:
        install(installer, "pypi://engine", manifest=ENGINE)
    assert "CORRAL_ALLOW_SOURCE_BUILDS=true" in str(refused.value)
    assert "--allow-source-builds" in str(refused.value)
    assert fetched(registry, source[0]) == 0
    assert leftovers(installer.settings.data_dir) == []


def test_the_setting_is_named_only_where_it_would_help(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    index = serve(registry, sdist("engine", "2.0"), wheel("engine", "1.0"))
    installer = make_installer(pypi=PypiSettings(index_url=index))
    with pytest.raises(NoPlatformFits, match="CORRAL_ALLOW_SOURCE_BUILDS"):
        install(installer, "pypi://engine==2.0", manifest=ENGINE)
    with pytest.raises(NoPlatformFits) as refused:
        install(installer, "pypi://engine==3.0", manifest=ENGINE)
    assert "CORRAL_ALLOW_SOURCE_BUILDS" not in str(refused.value)


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_where_it_is_allowed_a_source_package_is_built_and_installed(
    ending: str, registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    source = sdist("engine", "1.0", requires=("helper>=1", "never; python_version < '3'"), ending=ending)
    digest = "sha256:" + hashlib.sha256(source[1]).hexdigest()
    helper = wheel("helper", "1.5")
    installer = make_installer(pypi=allowed(serve(registry, source, helper)))
    version = install(installer, "pypi://engine", manifest=ENGINE)
    assert (word(version.path), word(version.path, "helper")) == ("source 1.0", "wheel 1.5")
    built = next(blob for blob in version.metadata.blobs if blob != "sha256:" + hashlib.sha256(helper[1]).hexdigest())
    assert version.metadata.python_lock == [
        f"engine==1.0 {built} built from source package {digest}",
        f"helper==1.5 sha256:{hashlib.sha256(helper[1]).hexdigest()}",
    ]
    assert version.metadata.verified_by == f"index hashes; engine 1.0 built from source package {digest}"
    stored = {path.name for path in (installer.settings.data_dir / "blobs/sha256").iterdir()}
    assert stored == {blob.removeprefix("sha256:") for blob in version.metadata.blobs}
    for blob in stored:
        path = installer.settings.data_dir / "blobs/sha256" / blob
        assert hashlib.sha256(path.read_bytes()).hexdigest() == blob
        assert path.stat().st_nlink == 1
    assert [item for item in leftovers(installer.settings.data_dir) if item.startswith("staging")] == []


def test_a_source_is_built_once_and_a_rebuild_of_it_is_the_same_version(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    body = f"open({str(runs)!r}, 'a').write('x')"
    settings = allowed(serve(registry, sdist("engine", "1.0", body=body)))
    first = install(make_installer(pypi=settings), "pypi://engine", manifest=ENGINE)
    once = runs.read_text()
    second = install(make_installer(pypi=settings), "pypi://engine", name="twin", manifest=ENGINE)
    assert (second.digest, second.metadata.blobs, runs.read_text()) == (first.digest, first.metadata.blobs, once)
    installer = make_installer(pypi=settings, data_dir=tmp_path / "other")
    elsewhere = install(installer, "pypi://engine", manifest=ENGINE)
    assert elsewhere.digest == first.digest
    assert elsewhere.metadata.blobs != first.metadata.blobs
    assert len(runs.read_text()) == 2 * len(once)


@pytest.mark.parametrize("source_version", ["1.0", "2.0"], ids=["same-version", "newer-source"])
def test_a_wheel_is_preferred_to_building(
    source_version: str, registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    source = sdist("engine", source_version, body="raise SystemExit('must not be built')")
    installer = make_installer(pypi=allowed(serve(registry, source, wheel("engine", "1.0"))))
    version = install(installer, "pypi://engine", manifest=ENGINE)
    assert word(version.path) == "wheel 1.0"
    assert version.metadata.verified_by == "index hashes"
    assert fetched(registry, source[0]) == 0


def test_a_source_of_a_version_that_is_asked_for_is_built_although_other_versions_have_wheels(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    installer = make_installer(pypi=allowed(serve(registry, sdist("engine", "2.0"), wheel("engine", "1.0"))))
    assert word(install(installer, "pypi://engine>=2", manifest=ENGINE).path) == "source 2.0"


def test_a_source_with_wrong_bytes_is_never_built(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    name, evil = sdist("engine", "1.0", body=f"open({str(ran)!r}, 'w')")
    index = serve(registry, (name, evil), promised={name: b"other"})
    installer = make_installer(pypi=allowed(index))
    with pytest.raises(DigestMismatch):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert not ran.exists()
    assert leftovers(installer.settings.data_dir) == []


def test_a_source_without_a_hash_is_never_built(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    name, data = sdist("engine", "1.0")
    registry.pages["/simple/engine/"] = (f'<a href="/files/{name}">x</a>'.encode(), {"Content-Type": "text/html"})
    registry.pages[f"/files/{name}"] = (data, {})
    installer = make_installer(pypi=allowed(f"{registry.url}/simple"))
    with pytest.raises(NoPlatformFits, match="without a SHA-256 hash, which are not built"):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert fetched(registry, name) == 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param("raise SystemExit('the compiler is missing')", "the compiler is missing", id="it-fails"),
        pytest.param("facts['version'] = '9.9'", "another package or version|9.9", id="it-makes-another-version"),
        pytest.param(
            "for n in range(3000): print('noise', n, 'x' * 80, flush=True)\nraise SystemExit('at last')",
            "at last", id="it-talks-more-than-is-kept",
        ),
    ],
)  # fmt: skip
def test_a_build_that_fails_shows_its_last_lines_and_leaves_nothing(
    body: str, why: str, registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    # `engine` is built first and fine; the install as a whole failed, so its wheel goes too.
    index = serve(registry, sdist("engine", "1.0", requires=("helper",)), sdist("helper", "1.0", body=body))
    installer = make_installer(pypi=allowed(index))
    with pytest.raises(BuildFailed, match=why) as failed:
        install(installer, "pypi://engine", manifest=ENGINE)
    assert failed.value.code == "build_failed"
    assert len(str(failed.value)) < 5000
    assert leftovers(installer.settings.data_dir) == []
    assert list((installer.settings.data_dir / "builds").iterdir()) == []


def test_a_build_is_stopped_when_its_time_is_up(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    source = sdist("engine", "1.0", body="import time; time.sleep(600)")
    installer = make_installer(pypi=allowed(serve(registry, source), build_limit_s=1.0))
    with pytest.raises(BuildFailed, match="not built within 1 s"):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert leftovers(installer.settings.data_dir) == []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("keep", [False, True], ids=["by-a-person", "by-a-shutdown"])
def test_a_cancel_ends_the_build_with_all_its_processes_within_five_seconds(
    keep: bool, registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    body = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}} {{child.pid}}')\n"
        f"os.rename({str(pids) + '.new'!r}, {str(pids)!r})\n"
        "time.sleep(600)\n"
    )
    source = sdist("engine", "1.0", body=body)
    installer = make_installer(pypi=allowed(serve(registry, source)))
    token, ended = CancelToken(), []

    def run() -> None:
        try:
            install(installer, "pypi://engine", manifest=ENGINE, cancel=token)
        except ArtifactError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(pids.exists, within_s=60)
    finally:
        token.cancel(keep_partials=keep)
        thread.join(5)
    assert not thread.is_alive()
    assert [type(error) for error in ended] == [Cancelled]
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))
    hexed = hashlib.sha256(source[1]).hexdigest()
    assert leftovers(installer.settings.data_dir) == ([f"blobs/sha256/{hexed}"] if keep else [])


def test_a_build_sees_nothing_of_ours(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-7c1f"
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "CORRAL_TOKEN", "PIP_EXTRA_INDEX_URL", "PYTHONPATH"):
        monkeypatch.setenv(name, f"/{canary}")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    seen = tmp_path / "seen"
    body = (
        "import json, os\n"
        "commands, pid = [], os.getpid()\n"
        "for _ in range(3):  # the backend, pip, and no further: what is above is Corral itself\n"
        "    if os.getsid(pid) != os.getsid(0): break\n"
        "    commands.append(open(f'/proc/{pid}/cmdline').read() + open(f'/proc/{pid}/environ').read())\n"
        "    pid = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
        "descriptors = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
        " if os.path.lexists(f'/proc/self/fd/{n}')]\n"
        f"json.dump({{'environ': dict(os.environ), 'commands': commands, 'cwd': os.getcwd(), 'session': os.getsid(0),"
        f" 'descriptors': descriptors}}, open({str(seen)!r}, 'w'))\n"
    )
    settings = allowed(serve(registry, sdist("engine", "1.0", body=body)), username="me", password=canary)
    installer = make_installer(pypi=settings)
    install(installer, "pypi://engine", manifest=ENGINE)
    assert canary not in seen.read_text()
    found = json.loads(seen.read_text())
    staging = str(installer.settings.data_dir / "staging")
    assert len(found["commands"]) >= 2
    assert found["environ"]["HOME"].startswith(staging)
    assert found["cwd"].startswith(staging)
    assert found["environ"]["PIP_CERT"] == str(trusted)  # what the one client trusts, pip does too
    assert found["session"] != os.getsid(0)
    assert not [path for path in found["descriptors"] if path.startswith(str(installer.settings.data_dir / "blobs"))]
    assert not Path(found["environ"]["HOME"]).exists()


def test_a_python_without_pip_is_named(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    installer = make_installer(pypi=allowed(serve(registry, sdist("engine", "1.0"))))
    bare: SourceBuilds = replace(installer.resolver.builds, program=str(tmp_path / "bare/bin/python"))
    installer.resolver = replace(installer.resolver, builds=bare)
    with pytest.raises(BuildFailed, match="has no pip"):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert leftovers(installer.settings.data_dir) == []


def test_a_build_requirement_comes_from_the_configured_index(
    registry: FakeRegistry, make_installer: Callable[..., Installer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    body = "import tool; assert tool.WORD == 'wheel 3.0'"
    needing = sdist("engine", "1.0", body=body, build_requires=("tool",))
    installer = make_installer(pypi=allowed(serve(registry, needing, wheel("tool", "3.0"))))
    version = install(installer, "pypi://engine", manifest=ENGINE)
    assert [line.split()[0] for line in version.metadata.python_lock] == ["engine==1.0"]


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("TRUE", True), ("false", False), ("", False)])
def test_the_environment_may_allow_builds(text: str, expected: bool, tmp_path: Path) -> None:
    settings = settings_from_environment(tmp_path, {"CORRAL_ALLOW_SOURCE_BUILDS": text})
    assert settings.pypi.allow_source_builds is expected
    assert settings_from_environment(tmp_path, {}).pypi.allow_source_builds is False


@pytest.mark.parametrize("text", ["1", "yes", "on", "ture"])
def test_a_wrong_value_is_refused_by_name(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSetting, match="CORRAL_ALLOW_SOURCE_BUILDS"):
        settings_from_environment(tmp_path, {"CORRAL_ALLOW_SOURCE_BUILDS": text})
    monkeypatch.setenv("CORRAL_ALLOW_SOURCE_BUILDS", text)
    done = CliRunner().invoke(artifacts_group, ["--data-dir", str(tmp_path), "list"])
    assert done.exit_code != 0
    assert "CORRAL_ALLOW_SOURCE_BUILDS" in done.output


def test_the_command_line_allows_builds_by_a_flag(
    registry: FakeRegistry, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", serve(registry, sdist("engine", "1.0")))
    plain = ["--data-dir", str(data_dir)]
    refused = CliRunner().invoke(artifacts_group, [*plain, "inspect", "pypi://engine", "--json"])
    assert refused.exit_code != 0
    assert "--allow-source-builds" in refused.output
    done = CliRunner().invoke(artifacts_group, [*plain, "--allow-source-builds", "inspect", "pypi://engine", "--json"])
    assert done.exit_code == 0, done.output
    assert "built from source package" in json.loads(done.stdout)["verified_by"]
