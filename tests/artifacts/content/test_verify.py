"""Versions damaged on disk: found, and built anew without a moment in which there is none."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.layers import LayerIndex
from corral.artifacts.content.verify import planned_tree
from corral.artifacts.disk import flush
from corral.artifacts.errors import VersionInUse
from corral.artifacts.install.installer import Installer
from corral.artifacts.install.repair import request_again, verify_backend
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.unpack.tree import Entry
from corral.system import SystemClock
from harness.artifacts import FakeRegistry, Image, files_layer, install, member, tar_of, tree_of


def image() -> Image:
    return Image(
        [
            files_layer(
                {"run.sh": b"#!/bin/sh\n", "gone": b"x", "dir/a": b"a", "dir/b": b"b" * 5000, "was/a/dir": b"1"}
            ),
            tar_of(
                member(".wh.gone"),
                member("dir/.wh.a"),
                member("was", b"now a file"),
                member("deep/er/file", b"1"),
                member("twin", type=b"1", linkname="deep/er/file"),
                member("below", type=b"1", linkname="dir/b"),
                member("link", type=b"2", linkname="dir/b"),
            ),
        ]
    )


def damages(installer: Installer) -> list[str]:
    return [path for item in verify_backend(installer, "demo", CancelToken()) for path in item.damaged]


def overwrite(path: Path, content: bytes) -> None:
    """As root may: in place, with the time put back."""
    status = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))


def bit_rot(path: Path) -> None:
    overwrite(path / "dir/b", b"B" + b"b" * 4999)


def truncation(path: Path) -> None:
    overwrite(path / "run.sh", b"")


def deletion(path: Path) -> None:
    (path / "deep/er/file").unlink()


def a_lost_directory(path: Path) -> None:
    (path / "deep/er/file").unlink()
    (path / "deep/er").rmdir()


def a_link_that_leads_elsewhere(path: Path) -> None:
    (path / "link").unlink()
    (path / "link").symlink_to("run.sh")


def a_link_for_a_file(path: Path) -> None:
    (path / "run.sh").unlink()
    (path / "run.sh").symlink_to("/bin/sh")


@pytest.mark.parametrize(
    "harm", [bit_rot, truncation, deletion, a_lost_directory, a_link_that_leads_elsewhere, a_link_for_a_file]
)
def test_damage_is_found_and_repaired(
    harm: Callable[[Path], None], registry: FakeRegistry, installer: Installer
) -> None:
    uri = registry.push(image())
    version = install(installer, uri)
    whole = tree_of(version.path)
    assert verify_backend(installer, "demo", CancelToken())[0].files == len(whole)
    assert damages(installer) == []
    harm(version.path)
    assert damages(installer)
    install(installer, uri)
    assert damages(installer), "a plain install looks at the digest alone"
    again = installer.install(request_again(version), CancelToken(), ProgressMeter(None, SystemClock()), force=True)
    assert again.digest == version.digest
    assert damages(installer) == []
    assert tree_of(version.path) == whole
    assert list((installer.settings.data_dir / "staging").glob("*/[!.]*")) == []


def test_what_a_backend_wrote_itself_is_no_damage(registry: FakeRegistry, installer: Installer) -> None:
    version = install(installer, registry.push(image()))
    (version.path / "dir/__pycache__").mkdir()
    (version.path / "dir/__pycache__/x.pyc").write_bytes(b"1")
    assert damages(installer) == []


def test_repair_fetches_only_what_is_damaged_and_follows_no_moved_tag(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    installer = make_installer(keep_blobs=False)
    first = image()
    version = install(installer, registry.push(first))
    bit_rot(version.path)
    registry.push(Image([files_layer({"run.sh": b"another"})]))
    registry.requests.clear()
    installer.install(request_again(version), CancelToken(), ProgressMeter(None, SystemClock()), force=True)
    assert installer.versions.current("demo").digest == version.digest
    assert damages(installer) == []
    lower, upper = first.layer_digests()
    assert len(registry.blob_requests(lower)) == 1
    assert len(registry.blob_requests(upper)) == 0


@pytest.mark.processes
def test_nothing_is_rebuilt_under_a_running_process(registry: FakeRegistry, installer: Installer) -> None:
    version = install(installer, registry.push(image()))
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    process = subprocess.Popen(command, cwd=version.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        with pytest.raises(VersionInUse, match="Stop it first"):
            installer.install(request_again(version), CancelToken(), ProgressMeter(None, SystemClock()), force=True)
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def test_a_large_layer_is_planned_in_linear_time() -> None:
    layer = LayerIndex(entries=[Entry("file", f"d{i % 100}/f{i}", 1) for i in range(50_000)])
    assert len(planned_tree([layer, layer])) == 50_000


@pytest.mark.parametrize("in_one_step", [True, False])
def test_two_directories_change_places(in_one_step: bool, tmp_path: Path) -> None:
    unknown = 1 << 20  # to every kernel
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "was").write_text(name)
    one, other = tmp_path / "one", tmp_path / "other"
    flush.exchange(one, other, flags=flush.RENAME_EXCHANGE if in_one_step else unknown)
    assert [(tmp_path / name / "was").read_text() for name in ("one", "other")] == ["other", "one"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def test_a_version_whose_layer_is_gone_counts_as_damaged_and_is_repaired(
    registry: FakeRegistry, installer: Installer
) -> None:
    version = install(installer, registry.push(image()))
    installer.layers.remove(version.metadata.layers[0])
    assert "missing" in damages(installer)[0]
    installer.install(request_again(version), CancelToken(), ProgressMeter(None, SystemClock()), force=True)
    assert damages(installer) == []
