"""What a backend is granted, decided from what lies on the disk. What the grants do is in commands/test_containment."""

import os
import sys
from pathlib import Path

import pytest

from corral.core.errors import InvalidInput
from corral.core.processes.process import ProcessKey, ProcessReadiness, ProcessSpec
from corral.worker.processes import confine
from corral.worker.processes.allowed_paths import Grant, Reach, gpu_devices, grant_of_names, plan_grants
from corral.worker.processes.confinement import plan_confinement
from corral.worker.processes.isolation import Isolation
from corral.worker.processes.uvm import ensure_uvm


def spec(*reads: Path | str, directory: Path | None = None) -> ProcessSpec:
    return ProcessSpec(
        key=ProcessKey("m#0"),
        backend="b",
        version_digest="1",
        command=("serve",),
        readiness=ProcessReadiness(kind="http", path="/health"),
        directory=str(directory) if directory is not None else None,
        reads=tuple(map(str, reads)),
    )


def granted(reach: Reach, one: ProcessSpec, **limits: int) -> set[str]:
    return {os.path.realpath(grant.path) for grant in plan_grants(one, reach, program="/bin/sh", own=(), **limits)}


@pytest.fixture
def corral(tmp_path: Path) -> Reach:
    for name in ("data/models/a", "data/keys", "beside"):
        (tmp_path / name).mkdir(parents=True)
    return Reach(private=(str(tmp_path / "data"),), weights=(str(tmp_path / "data" / "models"),))


def test_a_path_around_or_into_corrals_own_directory_is_not_granted(tmp_path: Path, corral: Reach) -> None:
    (tmp_path / "link").symlink_to("data/keys")
    wanted = spec("/", tmp_path, tmp_path / "link", tmp_path / "data/models", tmp_path / "data/models/a")
    found = granted(corral, wanted)
    assert {path for path in found if path.startswith(str(tmp_path))} == {str(tmp_path / "data/models/a")}
    assert "/" not in found


def test_files_that_a_snapshots_links_lead_to_are_granted_but_not_where_backends_may_write(
    tmp_path: Path, corral: Reach
) -> None:
    snapshot, blobs = tmp_path / "hub/snapshots/1", tmp_path / "hub/blobs"
    for directory in (snapshot, blobs):
        directory.mkdir(parents=True)
    for name in ("one", "two"):
        (blobs / name).write_text(name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    (tmp_path / "data/keys/admin.key").write_text("secret")
    (snapshot / "key").symlink_to(tmp_path / "data/keys/admin.key")
    (snapshot / "directory").symlink_to(tmp_path / "beside")

    def linked(reach: Reach, **limits: int) -> set[str]:
        found = granted(reach, spec(snapshot), **limits)
        return {path for path in found if path.startswith(str(tmp_path))} - {str(snapshot)}

    assert linked(corral) == {str(blobs / "one"), str(blobs / "two")}
    mine = Reach(private=corral.private, writable=(str(snapshot),))
    assert linked(mine) == set()
    assert len(linked(corral, most_links=1)) == 1


def test_an_interpreter_with_corrals_directory_in_it_is_granted_without_that(tmp_path: Path, corral: Reach) -> None:
    for name in ("bin", "lib/python3.11", "version/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin/python").write_text("")
    (tmp_path / "version/bin/python").symlink_to(tmp_path / "bin/python")
    found = granted(corral, spec(directory=tmp_path / "version"))
    assert str(tmp_path / "lib") in found
    assert not {str(tmp_path), *corral.private} & found


def test_paths_in_variables_that_are_passed_on_are_granted(tmp_path: Path, corral: Reach) -> None:
    environment = {"HF_HOME": str(tmp_path / "beside"), "ROOT": str(tmp_path), "OTHER": str(tmp_path / "data")}
    told = Reach(private=corral.private, environment=environment, passed_on=("HF_HOME", "ROOT"))
    assert {path for path in granted(told, spec()) if path.startswith(str(tmp_path))} == {str(tmp_path / "beside")}


@pytest.mark.parametrize(
    ("uid", "own", "cuda", "expected"),
    [
        (70000, True, False, [Grant("/proc", confine.NAMES)]),
        (1000, False, False, []),
        (1000, False, True, [Grant("/proc", confine.NAMES)]),
        (0, False, True, [Grant("/proc/self/task", confine.NAMES)]),
    ],
)
def test_who_may_name_threads(tmp_path: Path, uid: int, own: bool, cuda: bool, expected: list[Grant]) -> None:
    if cuda:
        (tmp_path / "nvidia0").touch()
    assert grant_of_names(uid, own=own, devices=str(tmp_path)) == expected


def test_devices_of_other_makers_are_known(tmp_path: Path) -> None:
    there = ["nvhost-ctrl", "nvmap", "nvgpu", "nvsciipc", "devmm_svm", "hl0", "tenstorrent", "dma_heap", "rknpu0"]
    for name in there:
        (tmp_path / name).touch()
    assert set(gpu_devices(str(tmp_path))) == {str(tmp_path / name) for name in there}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives others' users")
@pytest.mark.parametrize("wanted", ["required", "auto"])
def test_a_user_that_cannot_get_to_the_weights_is_no_containment(tmp_path: Path, wanted: str) -> None:
    """No Landlock, no mounts: `required` must not start a process as root."""
    weights = tmp_path / "closed" / "weights"
    weights.mkdir(parents=True)
    weights.parent.chmod(0o700)
    isolation = Isolation(users="70000-99999", setting="required" if wanted == "required" else "auto")

    def plan() -> object:
        return plan_confinement(
            spec(weights), 20000, isolation, Reach(), program=sys.executable, home=tmp_path, tmp=tmp_path
        ).user

    if wanted == "auto":
        assert plan() is None
        return
    with pytest.raises(InvalidInput, match="that every user can traverse"):
        plan()


@pytest.mark.parametrize("works", [True, False, None])
def test_the_device_file_of_cuda_is_made_or_its_absence_told(tmp_path: Path, works: bool | None) -> None:
    device = tmp_path / "dev" / "nvidia-uvm"
    device.parent.mkdir()
    assert ensure_uvm(tmp_path, str(tmp_path)) is None, "no NVIDIA driver"
    (tmp_path / "dev" / "nvidiactl").touch()
    if works is not None:
        tool = tmp_path / "nvidia-modprobe"
        tool.write_text(f'#!/bin/sh\n[ "$*" = "-u -c 0" ] && {"touch" if works else "test -e"} {device}\n')
        tool.chmod(0o755)
    problem = ensure_uvm(tmp_path, str(tmp_path))
    if works:
        assert problem is None
        assert device.exists()
    else:
        assert problem is not None
        assert "Run `nvidia-modprobe -u -c 0` as root" in problem
