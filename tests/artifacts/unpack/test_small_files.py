"""Layers of so many small files that a child process writes them."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import DiskFault, UnsafeArchive
from corral.artifacts.install.installer import Installer
from corral.artifacts.unpack.small_files import SmallFileFailed, SmallFiles
from corral.artifacts.unpack.small_files_child import MOST_DIRECTORIES
from corral.artifacts.unpack.tree import DIRECTORY_FLAGS, FEW_FILES, SMALL_BYTES
from harness.artifacts import FakeRegistry, Image, install, leftovers, member, tar_of, tree_of, wait_until

RUN = member("run.sh", b"#!/bin/sh\n", mode=0o755)
MANY = [member(f"lib/{i % 7}/{i}.py", b"x" * (i % 50)) for i in range(FEW_FILES + 300)]

Member = tuple[tarfile.TarInfo, bytes]


def children() -> list[psutil.Process]:
    """Those that still run: what other tests started and nobody has waited for yet has no command line any more."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if "small_files_child" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_every_file_arrives_with_its_content_mode_and_time(registry: FakeRegistry, installer: Installer) -> None:
    directories = [member(f"d{i}/f", str(i).encode(), mtime=1_000 + i) for i in range(3 * MOST_DIRECTORIES)]
    tricky = [
        member("lib/empty", b""),
        member("lib/tool", b"#!", mode=0o4755, mtime=1_234_567),
        member("lib/ölä", b"utf-8"),
        member("lib/largest-small", b"s" * SMALL_BYTES),
        member("lib/large", b"l" * (SMALL_BYTES + 1)),
    ]
    files = [RUN, *MANY, *directories, *tricky]
    version = install(installer, registry.push(Image([tar_of(*files)])))
    assert tree_of(version.path) == {info.name: data for info, data in files}
    tool = (version.path / "lib/tool").stat()
    assert (tool.st_mode & 0o7777, tool.st_mtime) == (0o555, 1_234_567)
    assert (version.path / "lib/0/7.py").stat().st_mode & 0o777 == 0o444
    assert children() == []


def test_where_no_child_can_be_started_the_files_arrive_all_the_same(
    registry: FakeRegistry, installer: Installer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    version = install(installer, registry.push(Image([tar_of(RUN, *MANY)])))
    assert tree_of(version.path) == {info.name: data for info, data in (RUN, *MANY)}


def test_a_hard_link_to_a_small_file_shares_it(registry: FakeRegistry, installer: Installer) -> None:
    link = member("again", type=tarfile.LNKTYPE, linkname=MANY[-1][0].name)
    version = install(installer, registry.push(Image([tar_of(RUN, *MANY, link)])))
    assert (version.path / "again").samefile(version.path / MANY[-1][0].name)


@pytest.mark.parametrize(
    ("after", "refusal"),
    [
        pytest.param([MANY[-1]], "appears twice", id="the-same-file"),
        pytest.param([member(MANY[-1][0].name, type=tarfile.SYMTYPE, linkname="x")], "appears twice", id="a-link"),
        pytest.param([member(f"{MANY[-1][0].name}/below", b"x")], "not a directory|appears twice", id="below-a-file"),
        pytest.param(
            [member("out", type=tarfile.SYMTYPE, linkname="/etc"), member("out/passwd", b"x")],
            "not a directory",
            id="through-a-link",
        ),
        pytest.param([member("../up", b"x")], "leaves the root directory", id="upwards"),
    ],
)
def test_what_is_refused_stays_refused_after_many_files(
    after: list[Member], refusal: str, registry: FakeRegistry, installer: Installer
) -> None:
    with pytest.raises(UnsafeArchive, match=refusal):
        install(installer, registry.push(Image([tar_of(RUN, *MANY, *after)])))
    assert leftovers(installer.settings.data_dir) == []
    assert children() == []


@pytest.fixture
def small() -> Iterator[SmallFiles]:
    small = SmallFiles(CancelToken())
    yield small
    small.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, DIRECTORY_FLAGS)
    yield descriptor
    os.close(descriptor)


def test_the_first_file_that_fails_is_named_and_nothing_follows_it(
    small: SmallFiles, directory: int, tmp_path: Path
) -> None:
    (tmp_path / "7").write_bytes(b"mine")
    for number in range(1000):
        try:
            small.add((str(number),), directory, mode=0o444, mtime_ns=0, data=b"x")
        except SmallFileFailed:
            break
    with pytest.raises(SmallFileFailed) as failed:
        small.settle()
    assert failed.value.parts == ("7",)
    assert isinstance(failed.value.cause, FileExistsError)
    assert sorted(path.name for path in tmp_path.iterdir()) == [str(number) for number in range(8)]
    assert (tmp_path / "7").read_bytes() == b"mine"


def test_a_child_that_was_killed_is_a_fault_and_no_hang(small: SmallFiles, directory: int) -> None:
    small.add(("a",), directory, mode=0o444, mtime_ns=0, data=b"x")
    (child,) = children()
    child.kill()
    with pytest.raises(DiskFault, match="ended unexpectedly"):
        small.settle()


def test_the_child_of_a_killed_process_ends_with_it(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom corral.artifacts.cancel import CancelToken\n"
        "from corral.artifacts.unpack.small_files import SmallFiles\n"
        "small = SmallFiles(CancelToken())\ndirectory = os.open(sys.argv[1], os.O_RDONLY)\n"
        "small.add(('a',), directory, mode=0o444, mtime_ns=0, data=b'x')\nsmall.settle()\nprint('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        (child,) = psutil.Process(parent.pid).children()
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate(timeout=90)
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
