"""The disk port on a real disk: whole or not at all, private, and one holder per directory."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from corral.core.errors import Conflict, Unavailable
from corral.system import SystemDisk
from corral.system.secret_files import ensure_secret, read_secret

disk = SystemDisk()


def test_what_was_written_is_read_and_only_its_owner_may(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert disk.read(path) is None
    disk.write(path, b"one")
    disk.write(path, b"two")
    assert disk.read(path) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert disk.list(path.parent) == [path]
    disk.remove(path)
    disk.remove(path)
    assert disk.list(path.parent) == []
    assert disk.list(tmp_path / "nowhere") == []


def test_a_file_becomes_executable_for_whoever_may_read_it_and_a_link_is_left_alone(tmp_path: Path) -> None:
    for before, after in {0o644: 0o755, 0o600: 0o700, 0o444: 0o555, 0o755: 0o755}.items():
        file = tmp_path / f"{before:o}"
        file.touch()
        file.chmod(before)
        disk.make_executable(file)
        assert stat.S_IMODE(file.stat().st_mode) == after
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.touch(0o644)
    link.symlink_to(victim)
    disk.make_executable(link)
    disk.make_executable(tmp_path / "nowhere")
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    disk.write(path, b"old")
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            disk.write(path, b"x" * 100_000)
        except OSError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert disk.read(path) == b"old"
    assert disk.list(tmp_path) == [path]


def test_the_draft_of_a_writer_killed_half_way_is_gone_after_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "file[1]"
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        disk.write(path, b"x" * 100_000)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGXFSZ
    assert disk.list(tmp_path) == [tmp_path / f".file[1].{child}"]
    others = [tmp_path / f".file[1].{os.getppid()}", tmp_path / ".file[1].notes", tmp_path / f".file1.{child}"]
    for other in others:
        other.touch()
    disk.write(path, b"new")
    assert disk.list(tmp_path) == sorted([path, *others])
    assert disk.read(path) == b"new"


def test_one_process_holds_a_directory_until_it_ends(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\nfrom corral.system import SystemDisk\n"
        "with SystemDisk().hold(pathlib.Path(sys.argv[1]), 'worker'):\n"
        "    print('held', flush=True)\n    sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "held\n"
        assert disk.is_held(tmp_path, "worker")
        assert not disk.is_held(tmp_path, "frontend")
        with pytest.raises(Conflict, match=f"process {other.pid}"), disk.hold(tmp_path, "worker"):
            pass
        other.kill()
    with disk.hold(tmp_path, "worker"):
        assert disk.is_held(tmp_path, "worker")
    assert not disk.is_held(tmp_path, "worker")


def test_a_launcher_becomes_executable(tmp_path: Path) -> None:
    launcher = tmp_path / "run.sh"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o644)
    disk.make_executable(launcher)
    assert os.access(launcher, os.X_OK)
    disk.make_executable(tmp_path / "missing")


def test_free_space_is_that_of_the_nearest_directory(tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path / "not" / "there") > 0


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "secret"
    assert read_secret(disk, path) is None
    assert ensure_secret(disk, path, lambda: "first") == "first"
    assert ensure_secret(disk, path, lambda: "second") == "first"


def test_a_secret_that_cannot_be_kept_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(Unavailable, match="secret in"):
        ensure_secret(disk, blocked / "secret", lambda: "x")


def test_a_file_with_two_names_takes_its_room_once(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "one").write_bytes(b"x" * 100_000)
    (tmp_path / "below" / "two").hardlink_to(tmp_path / "one")
    (tmp_path / "three").symlink_to(tmp_path / "one")
    assert 100_000 <= disk.used_bytes(tmp_path) < 120_000
