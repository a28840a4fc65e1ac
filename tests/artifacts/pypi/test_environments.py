"""From which index a package comes, and for which Python an environment is made. The indexes are servers on loopback;
the other Python is a program that says that it is one."""

import hashlib
import io
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.artifacts.content.manifest import Manifest
from corral.artifacts.errors import BadReference, NoPlatformFits, SourceRejected
from corral.artifacts.install.installer import Installer
from corral.artifacts.pypi.interpreters import Interpreter, find_interpreters, own_interpreter
from corral.artifacts.references import PypiPackages, parse_reference
from corral.artifacts.settings import PypiSettings
from corral.settings.roles import WorkerSettings
from harness.artifacts import FakeRegistry, install

ENGINE = Manifest(protocol="openai", start=("{python}", "-m", "engine"))
MINOR = sys.version_info.minor
NEXT, LATER = f"3.{MINOR + 1}", f"3.{MINOR + 2}"


def wheel(
    name: str, version: str, word: str, *, requires: tuple[str, ...] = (), tag: str = "py3-none-any"
) -> tuple[str, bytes]:
    info = f"{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.py", f"WORD = {word!r}")
        archive.writestr(f"{info}/METADATA", "\n".join(lines))
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-{tag}.whl", buffer.getvalue()


def serve(registry: FakeRegistry, *files: tuple[str, bytes], at: str = "simple", requires_python: str = "") -> str:
    projects: dict[str, list[dict[str, object]]] = {}
    for filename, data in files:
        path = f"/{at}-files/{filename}"
        registry.pages[path] = (data, {})
        offered = {
            "filename": filename,
            "url": path,
            "size": len(data),
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
        }
        projects.setdefault(filename.split("-")[0], []).append(
            {**offered, **({"requires-python": requires_python} if requires_python else {})}
        )
    for project, found in projects.items():
        page = json.dumps({"meta": {"api-version": "1.1"}, "files": found}).encode()
        registry.pages[f"/{at}/{project}/"] = (page, {"Content-Type": "application/vnd.pypi.simple.v1+json"})
    return f"{registry.url}/{at}"


def word(path: Path, module: str) -> str:
    code = f"import {module}; print({module}.WORD)"
    return subprocess.run([path / "bin/python", "-Ic", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def second() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        yield running


def test_requested_packages_come_from_the_additional_index_and_others_from_the_normal_one(
    registry: FakeRegistry, second: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    normal = serve(registry, wheel("engine", "9.0", "normal"), wheel("helper", "1.0", "normal"))
    more = serve(
        second,
        wheel("engine", "1.0", "additional", requires=("helper", "kernels")),
        wheel("helper", "9.0", "additional"),
        wheel("kernels", "1.0", "additional"),
    )
    installer = make_installer(pypi=PypiSettings(index_url=normal, username="me", password="secret"))
    version = install(installer, f"pypi://engine?index={more}", manifest=ENGINE)
    assert {name: word(version.path, name) for name in ("engine", "helper", "kernels")} == {
        "engine": "additional",  # although the normal index has a newer one
        "helper": "normal",  # although the additional index has a newer one
        "kernels": "additional",  # only there
    }
    assert version.metadata.uri == f"pypi://engine?index={more}"
    assert not any("authorization" in {name.lower() for name in headers} for _, _, headers in second.requests)
    assert any("authorization" in {name.lower() for name in headers} for _, _, headers in registry.requests)


def test_a_requested_package_that_the_additional_index_does_not_have_comes_from_the_normal_one(
    registry: FakeRegistry, second: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    normal = serve(
        registry, wheel("engine", "1.0", "normal", requires=("kernels==1.0",)), wheel("kernels", "1.0", "slow")
    )
    more = serve(second, wheel("kernels", "1.0+cu128", "fast"))
    installer = make_installer(pypi=PypiSettings(index_url=normal))
    version = install(installer, f"pypi://engine==1.0,kernels==1.0+cu128?index={more}", manifest=ENGINE)
    assert (word(version.path, "engine"), word(version.path, "kernels")) == ("normal", "fast")


def test_a_package_that_neither_index_has_is_an_error(
    registry: FakeRegistry, second: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    normal, more = serve(registry, wheel("x", "1", "x")), serve(second, wheel("x", "1", "x"))
    with pytest.raises(SourceRejected, match="404"):
        install(make_installer(pypi=PypiSettings(index_url=normal)), f"pypi://engine?index={more}", manifest=ENGINE)


def test_a_reference_with_an_index_is_read_and_written() -> None:
    text = "pypi://engine==1.0,helper>=1,<2?index=https://wheels.example/cu128"
    assert parse_reference(text) == PypiPackages(("engine==1.0", "helper>=1,<2"), "https://wheels.example/cu128")
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "pypi://engine?index=",
        "pypi://engine?index=wheels.example",
        "pypi://engine?index=file:///srv/wheels",
        "pypi://engine?index=https://me:secret@wheels.example",
        "pypi://engine?extra=https://wheels.example",
        "pypi://engine==1/file?index=https://wheels.example",
    ],
)
def test_an_index_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadReference):
        parse_reference(text)


def pretend(directory: Path, version: str, **changes: object) -> Path:
    """A program that answers as a Python of this version, and otherwise runs this one."""
    directory.mkdir(exist_ok=True)
    program = directory / f"python{version.rpartition('.')[0]}"
    told = {
        "path": str(program),
        "version": version,
        "implementation": "cpython",
        "platform": sysconfig.get_platform(),
        "free_threaded": False,
        **changes,
    }
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *free_threaded*) echo \'{json.dumps(told)}\';; *) exec {sys.executable} "$@";; esac\n'
    )
    program.chmod(0o755)
    return program


def test_an_engine_that_excludes_corrals_python_gets_the_newest_other_that_fits(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    tag = f"cp3{MINOR + 1}-none-any"
    normal = serve(
        registry,
        wheel("engine", "1.0", "engine", requires=(f"helper; python_version >= '{NEXT}'",)),
        requires_python=f">={NEXT},<{LATER}",
    )
    serve(
        registry,
        wheel("helper", "1.0", "helper", tag=tag),
        wheel("helper", "1.0", "wrong", tag=f"cp3{MINOR}-none-any"),
    )
    program = pretend(tmp_path / "bin", f"{NEXT}.4")
    pretend(tmp_path / "bin", f"{LATER}.0")
    installer = make_installer(pypi=PypiSettings(index_url=normal, pythons=("no-such-python", str(tmp_path / "bin"))))
    version = install(installer, "pypi://engine", manifest=ENGINE)
    assert os.readlink(version.path / "bin/python") == str(program)
    assert f"version = {NEXT}.4" in (version.path / "pyvenv.cfg").read_text()
    site = version.path / "lib" / f"python{NEXT}" / "site-packages"
    assert "helper" in (site / "helper.py").read_text()
    assert {path.name for path in (version.path / "lib").iterdir()} == {f"python{NEXT}"}


def test_without_a_python_that_fits_nothing_is_downloaded_and_the_versions_that_would_do_are_named(
    registry: FakeRegistry, make_installer: Callable[..., Installer], tmp_path: Path
) -> None:
    normal = serve(registry, wheel("engine", "1.0", "x"), requires_python=f">={NEXT},<3.{MINOR + 3}")
    pretend(tmp_path / "bin", "3.1.2")
    installer = make_installer(pypi=PypiSettings(index_url=normal, pythons=(str(tmp_path / "bin"),)))
    own = ".".join(map(str, sys.version_info[:3]))
    expected = (
        rf"Python {NEXT} or {LATER} would do; this machine has {own} \(Corral's own\), 3\.1\.2\. Install python{LATER},"
    )
    with pytest.raises(NoPlatformFits, match=expected):
        install(installer, "pypi://engine", manifest=ENGINE)
    assert {path for _, path, _ in registry.requests} == {"/simple/engine/"}


def test_a_version_that_does_not_exist_is_not_blamed_on_the_platform(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    normal = serve(registry, wheel("engine", "1.0", "x"), wheel("engine", "1.1", "x"))
    with pytest.raises(NoPlatformFits, match=r"no such version; the newest there: 1\.1, 1\.0") as caught:
        install(make_installer(pypi=PypiSettings(index_url=normal)), "pypi://engine==9.9", manifest=ENGINE)
    assert "platform" not in str(caught.value)


def test_packages_for_another_machine_are_not_blamed_on_python(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    normal = serve(registry, wheel("engine", "1.0", "x", tag="py3-none-win_amd64"))
    with pytest.raises(NoPlatformFits) as caught:
        install(make_installer(pypi=PypiSettings(index_url=normal)), "pypi://engine", manifest=ENGINE)
    assert "would do" not in str(caught.value)


def test_only_usable_pythons_are_found(tmp_path: Path) -> None:
    good = pretend(tmp_path / "good", f"{NEXT}.1")
    newer = pretend(tmp_path / "newer", f"{NEXT}.3")
    pretend(tmp_path / "bad", f"3.{MINOR + 4}.0", implementation="pypy")
    pretend(tmp_path / "threads", f"3.{MINOR + 5}.0", free_threaded=True)
    pretend(tmp_path / "machine", f"3.{MINOR + 6}.0", platform="linux-other")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "python3.99").write_text("not a program")
    places = [str(tmp_path / name) for name in ("good", "newer", "bad", "threads", "machine", "broken", "missing")]
    found = find_interpreters([str(good), *places, sys.executable])
    assert [(one.path, one.version) for one in found] == [(str(newer), f"{NEXT}.3")]


def test_another_python_is_judged_as_it_would_judge() -> None:
    """Checked with this version, of which both answers are known."""
    own = own_interpreter()
    told = Interpreter(own.path, own.version)
    assert list(told.ranks) == list(own.ranks)
    assert told.markers() == own.markers()


def test_an_environment_of_another_python_runs_on_it(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    others = find_interpreters(WorkerSettings.model_fields["pythons"].default)
    if not others:
        pytest.skip("this machine has one Python only")
    version = ".".join(map(str, others[0].minor))
    own = ".".join(map(str, sys.version_info[:2]))
    normal = serve(registry, wheel("engine", "1.0", "engine"), requires_python=f"!={own}.*")
    pythons = PypiSettings(index_url=normal, pythons=(others[0].path,))
    path = install(make_installer(pypi=pythons), "pypi://engine", manifest=ENGINE).path
    code = "import engine, sys; print(engine.WORD, *sys.version_info[:2], sys.prefix, sep='.')"
    done = subprocess.run([path / "bin/python", "-Ic", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"engine.{version}.{path}"
