"""Archives made to break out (S-23 to S-27, S-32). Each is refused or contained, and the outside is looked at."""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from corral.artifacts.errors import BadManifest, BudgetExceeded, UnsafeArchive
from corral.artifacts.install.installer import Installer
from corral.artifacts.settings import UnpackLimits
from corral.system import SystemDisk
from harness.artifacts import FakeRegistry, Image, files_layer, install, leftovers, member, tar_of, tree_of

RUN = files_layer({"run.sh": b"#!/bin/sh\n"})
HELLO = b"{protocol: openai, start: ['{dir}/hello']}"
SYMLINK, HARDLINK, DIRECTORY = b"2", b"1", b"5"


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=SYMLINK, linkname=target)


def long_path_breakout() -> bytes:
    """Links that make a path longer than any path may be, so that a resolver by name gives up looking."""
    deep = "d" * 247
    steps: list[tuple[tarfile.TarInfo, bytes]] = []
    path = ""
    for letter in "abcdefghijklmnop":
        steps.append(member(f"{path}{deep}", type=DIRECTORY, mode=0o755))
        steps.append(link(f"{path}{letter}", deep))
        path += f"{letter}/"
    steps.append(link(f"{path}{'l' * 254}", "../" * 16))
    steps.append(link("escape", f"{path}{'l' * 254}/../../outside"))
    steps.append(member("escape/written", b"evil"))
    return tar_of(*steps)


def raw_member(name: bytes, data: bytes = b"evil", kind: bytes = b"0", size: int | None = None) -> bytes:
    """A header no library would write."""
    header = bytearray(512)
    header[: len(name)] = name
    header[100:108] = b"0000644\0"
    header[124:136] = b"%011o\0" % (len(data) if size is None else size)
    header[136:148] = b"%011o\0" % 1_700_000_000
    header[156:157] = kind
    header[257:265] = b"ustar\x0000"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data + bytes(-len(data) % 512) + bytes(1024)


def pax(record: bytes) -> bytes:
    line = b"%d " % 0 + record + b"\n"
    length = len(record) + 2
    while len(b"%d " % length + record + b"\n") != length:
        length += 1
    line = b"%d " % length + record + b"\n"
    return raw_member(b"pax", line, b"x")[:-1024]


REFUSED = {
    "a-name-that-leads-upwards": tar_of(member("../outside/victim", b"evil")),
    "upwards-in-the-middle": tar_of(member("a/../../outside/victim", b"evil")),
    "an-absolute-name": tar_of(member("/outside/victim", b"evil")),
    "a-nul-in-a-pax-name": pax(b"path=victim\0x") + raw_member(b"x"),
    "an-upwards-pax-name": pax(b"path=../outside/victim") + raw_member(b"x"),
    "a-name-too-long-for-a-file": tar_of(member("n" * 300, b"evil")),
    "two-hundred-directories-deep": tar_of(member("/".join(["d"] * 200), b"evil")),
    "the-same-file-twice": tar_of(member("a", b"1"), member("a", b"2")),
    "a-file-over-its-own-directory": tar_of(member("a/b", b"1"), member("a", b"2")),
    "through-a-symlink-out": tar_of(link("door", "../outside"), member("door/victim", b"evil")),
    "through-an-absolute-symlink": tar_of(link("door", "/tmp"), member("door/corral-escape", b"evil")),
    "through-a-chain-of-symlinks": tar_of(link("a", "b"), link("b", ".."), member("a/outside/victim", b"evil")),
    "over-a-symlink-to-a-file": tar_of(link("victim", "../outside/victim"), member("victim", b"evil")),
    "a-hard-link-upwards": tar_of(member("h", type=HARDLINK, linkname="../outside/victim")),
    "a-hard-link-through-a-symlink": tar_of(
        link("door", "../outside"), member("h", type=HARDLINK, linkname="door/victim"), member("h", b"evil")
    ),
    "a-hard-link-to-a-symlink": tar_of(link("s", "../outside/victim"), member("h", type=HARDLINK, linkname="s")),
    "a-hard-link-to-nothing": tar_of(member("h", type=HARDLINK, linkname="nowhere")),
    "longer-than-any-path": long_path_breakout(),
    "a-whiteout-that-leads-upwards": tar_of(member("../outside/.wh.victim")),
    "a-whiteout-of-the-parent": tar_of(member(".wh...", b"")),
    "a-whiteout-of-nothing": tar_of(member("d/.wh.", b"")),
    "a-whiteout-through-a-symlink": tar_of(link("door", "../outside"), member("door/.wh.victim")),
    "an-opaque-whiteout-through-a-symlink": tar_of(link("door", "../outside"), member("door/.wh..wh..opq")),
    "a-character-device": tar_of(member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "a-block-device": tar_of(member("sda", type=tarfile.BLKTYPE, devmajor=8)),
    "a-pipe": tar_of(member("pipe", type=tarfile.FIFOTYPE)),
    "a-sparse-file": pax(b"GNU.sparse.major=1") + raw_member(b"x"),
    "an-unknown-type": raw_member(b"x", kind=b"Z"),
    "a-size-beyond-the-archive": raw_member(b"x", size=1 << 30),
    "a-negative-size": raw_member(b"x")[:124] + b"\xff" * 12 + raw_member(b"x")[136:],
    "a-size-with-a-sign": raw_member(b"x")[:124] + b"-7\0" + raw_member(b"x")[127:],
    "a-time-that-is-no-number": pax(b"mtime=nan") + raw_member(b"x"),
    "a-wrong-checksum": b"x" + raw_member(b"y")[1:],
    "a-huge-extended-header": raw_member(b"p", b"", b"x", size=1 << 28),
    "a-global-name": raw_member(b"g", b"12 path=abc\n", b"g")[:-1024] + raw_member(b"x"),
    "not-a-tar-at-all": b"hello, I am not an archive" * 100,
    "a-name-that-is-not-utf-8": raw_member(b"\xff"),
    "a-link-to-what-is-not-utf-8": tar_of(link("door", "\udcff")),
    "a-member-that-is-the-root": tar_of(member("./", b"evil")),
    "a-member-that-is-the-absolute-root": tar_of(member("/", b"evil")),
}


@pytest.fixture
def outside(data_dir: Path) -> Path:
    """What an archive must not touch: beside, above and below everything Corral writes."""
    place = data_dir.parent / "outside"
    place.mkdir()
    (place / "victim").write_text("untouched")
    return place


def assert_untouched(outside: Path) -> None:
    assert sorted(path.name for path in outside.iterdir()) == ["victim"]
    assert (outside / "victim").read_text() == "untouched"
    assert stat.S_IMODE((outside / "victim").stat().st_mode) == 0o644
    assert not Path("/tmp/corral-escape").exists()


@pytest.mark.parametrize("archive", [pytest.param(value, id=name) for name, value in REFUSED.items()])
@pytest.mark.parametrize("position", ["alone", "over-a-layer"])
def test_a_hostile_layer_is_refused_and_nothing_of_it_stays(
    archive: bytes, position: str, registry: FakeRegistry, installer: Installer, outside: Path
) -> None:
    layers = [archive] if position == "alone" else [RUN, archive]
    with pytest.raises(UnsafeArchive):
        install(installer, registry.push(Image(layers)))
    assert_untouched(outside)
    assert leftovers(installer.settings.data_dir) == []


def test_a_whiteout_through_a_lower_layers_symlink_removes_nothing(
    registry: FakeRegistry, installer: Installer, outside: Path
) -> None:
    lower = tar_of(member("run.sh", b"#!"), link("door", "../../../../outside"))
    for upper in (
        tar_of(member("door/.wh.victim")),
        tar_of(member("door/.wh..wh..opq")),
        tar_of(member("door/x", b"evil")),
    ):
        with pytest.raises(UnsafeArchive, match=r"not a directory|the link"):
            install(installer, registry.push(Image([lower, upper])))
        assert_untouched(outside)


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        pytest.param("a/door", "/etc/passwd", "../etc/passwd", id="an-absolute-target-starts-at-the-images-root"),
        pytest.param("a/b/door", "../../../../x", "../../x", id="upwards-stops-at-the-root"),
        pytest.param("door", "..", ".", id="the-root-is-its-own-parent"),
        pytest.param("a/door", "../b/c", "../b/c", id="a-target-inside-stays-as-written"),
        pytest.param("a/door", "b/../c", "../a/c", id="a-name-before-upwards-may-be-a-link-itself"),
        pytest.param("door", "./a//b/", "./a//b/", id="dots-and-slashes-change-nothing"),
    ],
)
def test_a_symlink_leads_where_it_would_inside_the_image(
    name: str, target: str, expected: str, registry: FakeRegistry, installer: Installer
) -> None:
    version = install(installer, registry.push(Image([RUN, tar_of(link(name, target))])))
    assert os.readlink(version.path / name) == expected
    assert (version.path / name).resolve().is_relative_to(version.path.resolve())


def test_no_chain_of_links_leads_out_of_the_tree(registry: FakeRegistry, installer: Installer, outside: Path) -> None:
    """`up` leads to the root of the tree, so that text which goes down to it and up again climbs out of the tree."""
    deep = "/".join(f"d{n}" for n in range(20))
    way_out = "../" * 18 + str(outside / "victim").lstrip("/")
    members = [member(deep, type=DIRECTORY, mode=0o755), link(f"{deep}/up", "../" * 20)]
    members += [link("run.sh", f"{deep}/up/{way_out}"), member("corral.yaml", HELLO)]
    version = install(installer, registry.push(Image([tar_of(*members)])))
    for found in version.path.rglob("*"):
        if found.is_symlink():
            assert found.resolve().is_relative_to(version.path.resolve()), found
    SystemDisk().make_executable(version.path / "run.sh")
    assert_untouched(outside)


def test_a_launcher_that_is_a_link_starts_nothing_and_is_never_made_executable(
    registry: FakeRegistry, installer: Installer
) -> None:
    linked = tar_of(member("real", b"#!/bin/sh\n", mode=0o644), link("run.sh", "real"))
    with pytest.raises(BadManifest):
        install(installer, registry.push(Image([linked])))


def test_setuid_bits_owners_and_capabilities_are_not_taken_over(registry: FakeRegistry, installer: Installer) -> None:
    owned, data = member("su", b"#!", mode=0o6755, uid=12345, gid=12345)
    owned.pax_headers = {"SCHILY.xattr.security.capability": "everything"}
    version = install(installer, registry.push(Image([RUN, tar_of((owned, data))])))
    status = (version.path / "su").stat()
    assert stat.S_IMODE(status.st_mode) == 0o555
    assert status.st_uid == os.getuid()
    assert os.listxattr(version.path / "su") == []


SMALL = UnpackLimits(total_bytes=4 << 20, file_bytes=3 << 20, ratio=50, ratio_floor_bytes=1 << 20, members=500)
ZEROS = tar_of(member("zeros", bytes(2_900_000)))
BOMBS: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "a-gzip-bomb": (ZEROS, lambda raw: gzip.compress(raw, mtime=0)),
    "a-zstd-bomb": (ZEROS, zstandard.ZstdCompressor(level=19).compress),
    "an-xz-bomb": (ZEROS, lzma.compress),
    "a-bzip2-bomb": (ZEROS, bz2.compress),
    "too-many-bytes": (tar_of(*(member(f"f{i}", os.urandom(700_000)) for i in range(7))), lambda raw: raw),
    "too-large-a-file": (raw_member(b"x", size=1 << 40), lambda raw: gzip.compress(raw, mtime=0)),
    "too-many-members": (tar_of(*(member(f"m{i}") for i in range(600))), lambda raw: gzip.compress(raw, mtime=0)),
    "too-many-directories": (tar_of(*(member(f"{i}/a/b/c") for i in range(200))), lambda raw: gzip.compress(raw)),
}


@pytest.mark.parametrize(("raw", "compress"), [pytest.param(*value, id=name) for name, value in BOMBS.items()])
def test_a_bomb_is_stopped_and_cleaned_up(
    raw: bytes, compress: Callable[[bytes], bytes], registry: FakeRegistry, make_installer: Callable[..., Installer]
) -> None:
    installer = make_installer(unpack=SMALL)
    image = Image([raw], compress=compress)
    with pytest.raises(BudgetExceeded):
        install(installer, registry.push(image))
    assert leftovers(installer.settings.data_dir) == []


def test_an_image_may_list_its_root(registry: FakeRegistry, installer: Installer) -> None:
    for name in ("/", "./"):
        root = member(name, type=tarfile.DIRTYPE)
        version = install(installer, registry.push(Image([tar_of(root, member("run.sh", name.encode()))])))
        assert (version.path / "run.sh").read_text() == name


def test_the_last_members_padding_may_be_missing(registry: FakeRegistry, installer: Installer) -> None:
    whole = tar_of(member("run.sh", b"#!"), member("last", b"x" * 700))
    cut = whole[: whole.index(b"x" * 700) + 700]
    version = install(installer, registry.push(Image([cut])))
    assert (version.path / "last").read_bytes() == b"x" * 700


def test_many_layers_share_one_budget(registry: FakeRegistry, make_installer: Callable[..., Installer]) -> None:
    installer = make_installer(unpack=replace(SMALL, members=100))
    layers = [RUN, *(files_layer({f"l{i}/f{j}": b"" for j in range(25)}) for i in range(5))]
    with pytest.raises(BudgetExceeded, match="more than 100 members"):
        install(installer, registry.push(Image(layers)))
    assert leftovers(installer.settings.data_dir) == []


def test_the_default_budget_stops_a_million_members() -> None:
    assert UnpackLimits().members < 1_000_000


def zip_of(*members: tuple[str, bytes, int]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()


def lying_zip() -> bytes:
    """Claims one byte and holds a megabyte."""
    data = bytearray(zip_of(("big", bytes(1 << 20), 0o100644)))
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<L", 1)
    return bytes(data)


BAD_ZIPS = {
    "zip-slip": zip_of(("../outside/victim", b"evil", 0o100644)),
    "an-absolute-zip-name": zip_of(("/outside/victim", b"evil", 0o100644)),
    "a-backslash": zip_of(("..\\outside\\victim", b"evil", 0o100644)),
    "a-drive": zip_of(("C:/victim", b"evil", 0o100644)),
    "a-symlink-in-a-zip": zip_of(("door", b"../outside", 0o120777), ("door/victim", b"evil", 0o100644)),
    "a-zip-bomb": zip_of(("zeros", bytes(3_000_000), 0o100644)),
    "a-zip-that-lies": lying_zip(),
    "too-many-zip-members": zip_of(*((f"m{i}", b"", 0o100644) for i in range(600))),
    "the-same-zip-member-twice": zip_of(("run.sh", b"1", 0o100644), ("./run.sh", b"2", 0o100644)),
    "no-zip": b"PK\x03\x04" + b"nonsense" * 50,
}


@pytest.mark.parametrize("archive", [pytest.param(value, id=name) for name, value in BAD_ZIPS.items()])
def test_a_hostile_zip_is_refused(
    archive: bytes, registry: FakeRegistry, make_installer: Callable[..., Installer], outside: Path
) -> None:
    installer = make_installer(unpack=SMALL)
    registry.pages["/backend.zip"] = (archive, {"ETag": '"1"'})
    with pytest.raises(UnsafeArchive):
        install(installer, f"{registry.url}/backend.zip")
    assert_untouched(outside)
    assert leftovers(installer.settings.data_dir) == []


def test_a_plain_zip_installs(registry: FakeRegistry, installer: Installer) -> None:
    registry.pages["/backend.zip"] = (zip_of(("run.sh", b"#!/bin/sh\n", 0o100755), ("d/x", b"x", 0)), {"ETag": '"1"'})
    version = install(installer, f"{registry.url}/backend.zip")
    assert tree_of(version.path) == {"run.sh": b"#!/bin/sh\n", "d/x": b"x"}
    assert version.metadata.verified_by == "first download"
