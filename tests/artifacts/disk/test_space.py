"""A full disk fails this one artifact with a typed error and leaves no garbage (INV-49, F-29, F-30)."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.artifacts.disk.space import SpaceReservations
from corral.artifacts.errors import DiskFault, DiskFull
from corral.artifacts.install.installer import Installer
from corral.artifacts.oci.image import OciPlatform
from corral.artifacts.wiring import build_installer
from corral.system import SystemClock, SystemIds
from harness.artifacts import Exchange, FakeRegistry, Image, fast_settings, files_layer, install, leftovers

RUN = b"#!/bin/sh\n"
SIZE = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 8 MiB and 3000 inodes."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small filesystem needs root")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes=3000", "none", str(place)], check=False
    )
    if done.returncode != 0:
        pytest.skip("this machine lets nobody mount a filesystem")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def cramped(small_disk: Path) -> Iterator[Installer]:
    settings = fast_settings(small_disk / "data")
    platform = OciPlatform(os="linux", architecture="amd64")
    installer = build_installer(settings, clock=SystemClock(), ids=SystemIds(), platform=platform)
    yield installer
    installer.staging.close()
    installer.resolver.outbound.close()


@pytest.mark.processes
def test_what_cannot_fit_is_refused_before_a_byte_moves(registry: FakeRegistry, cramped: Installer) -> None:
    image = Image([files_layer({"run.sh": RUN, "big": os.urandom(6 << 20)})])
    with pytest.raises(DiskFull, match="needs about"):
        install(cramped, registry.push(image))
    assert registry.blob_requests(image.layer_digests()[0]) == []
    assert leftovers(cramped.settings.data_dir) == []


@pytest.mark.processes
def test_what_grows_beyond_the_disk_fails_typed_and_leaves_nothing(registry: FakeRegistry, cramped: Installer) -> None:
    image = Image([files_layer({"run.sh": RUN}), files_layer({f"f{i}": bytes(1 << 20) for i in range(12)})])
    with pytest.raises(DiskFull):
        install(cramped, registry.push(image))
    assert leftovers(cramped.settings.data_dir) == []
    install(cramped, registry.push(Image([files_layer({"run.sh": RUN})])))  # the node is usable afterwards


@pytest.mark.processes
def test_a_disk_filled_by_others_meanwhile_fails_typed(
    registry: FakeRegistry, cramped: Installer, small_disk: Path
) -> None:
    image = Image([files_layer({"run.sh": RUN, "noise": os.urandom(1 << 20)})])
    uri = registry.push(image)
    filled = []

    def fill(exchange: Exchange) -> None:
        if "/blobs/" in exchange.path and exchange.path.endswith(image.layer_digests()[0]):
            filled.append(True)
            with (small_disk / "others").open("wb") as file:
                try:
                    while True:
                        file.write(bytes(1 << 16))
                        file.flush()
                except OSError:
                    return

    registry.hooks.append(fill)
    with pytest.raises(DiskFull):
        install(cramped, uri)
    assert filled
    (small_disk / "others").unlink()
    assert leftovers(cramped.settings.data_dir) == []


@pytest.mark.processes
def test_no_inodes_are_a_full_disk_too(registry: FakeRegistry, cramped: Installer) -> None:
    image = Image([files_layer({"run.sh": RUN, **{f"d/{i}": b"" for i in range(3500)}})])
    with pytest.raises(DiskFull):
        install(cramped, registry.push(image))
    assert leftovers(cramped.settings.data_dir) == []


@pytest.mark.processes
def test_a_read_only_filesystem_is_a_typed_fault(registry: FakeRegistry, cramped: Installer, small_disk: Path) -> None:
    uri = registry.push(Image([files_layer({"run.sh": RUN})]))
    install(cramped, uri)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        with pytest.raises(DiskFault):
            install(cramped, uri, name="other")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert [backend.name for backend in cramped.versions.list()] == ["demo"]


def test_a_data_directory_that_is_removed_meanwhile_is_a_typed_fault(
    registry: FakeRegistry, installer: Installer
) -> None:
    uri = registry.push(Image([files_layer({"run.sh": RUN})]))
    shutil.rmtree(installer.settings.data_dir)
    with pytest.raises(DiskFault, match=r"no longer exists.*Restore the data directory"):
        install(installer, uri)


@pytest.mark.processes
def test_blobs_that_are_unpacked_already_are_removed_for_space(registry: FakeRegistry, cramped: Installer) -> None:
    first = Image([files_layer({"run.sh": RUN, "a": os.urandom(1_600_000)})])
    second = Image([files_layer({"run.sh": RUN, "b": os.urandom(1_400_000)})])
    install(cramped, registry.push(first))
    assert cramped.blobs.find(first.layer_digests()[0]) is not None
    install(cramped, registry.push(second), name="other")
    assert cramped.blobs.find(first.layer_digests()[0]) is None


def test_two_installs_are_not_promised_the_same_bytes(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    reservations = SpaceReservations(tmp_path, reserve_bytes=0)
    with (
        reservations.reserve(int(free * 0.6), "one"),
        pytest.raises(DiskFull),
        reservations.reserve(int(free * 0.6), "two"),
    ):
        pytest.fail("the second was promised what the first has")
    with reservations.reserve(int(free * 0.6), "three"):
        pass


def test_packed_bytes_can_be_dropped_after_unpacking(
    registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    installer = make_installer(keep_blobs=False)
    install(installer, registry.push(Image([files_layer({"run.sh": RUN})])))
    assert list(installer.blobs.digests()) == []
