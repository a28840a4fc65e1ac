"""Archives made at random: whatever they hold, unpacking ends, raises nothing but our own errors, and stays inside."""

import bz2
import gzip
import io
import lzma
import os
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import ArtifactError
from corral.artifacts.pypi.wheels import wheel_path
from corral.artifacts.settings import UnpackLimits
from corral.artifacts.unpack.budget import UnpackBudget
from corral.artifacts.unpack.inflate import classify_compression, inflate
from corral.artifacts.unpack.tar import unpack_tar
from corral.artifacts.unpack.tree import DIRECTORY_FLAGS, TreeWriter
from corral.artifacts.unpack.zip import unpack_zip
from corral.system import SystemClock

LIMITS = UnpackLimits(total_bytes=1 << 20, file_bytes=1 << 19, members=200, seconds=20.0, depth=12, ratio_floor_bytes=0)
BOUNDED = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

PARTS = st.sampled_from(["a", "b", "up", "..", ".", "", ".wh.a", ".wh..wh..opq", "run.sh", "x" * 300, "é", "n\0ul"])
NAMES = st.lists(PARTS, min_size=1, max_size=6).map("/".join)
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, b"\0", b"7", b"3", b"Z"])


@st.composite
def tar_archives(draw: st.DrawFn) -> bytes:
    buffer = io.BytesIO()
    style = draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
    with tarfile.open(fileobj=buffer, mode="w", format=style, errors="surrogateescape") as archive:
        for name, kind, target, data in draw(
            st.lists(st.tuples(NAMES, KINDS, NAMES, st.binary(max_size=600)), max_size=12)
        ):
            info = tarfile.TarInfo(name.replace("\0", "?"))
            info.type, info.linkname, info.size = kind, target.replace("\0", "?"), len(data)
            info.mtime = draw(st.sampled_from([0, 1, 2**33, 0.5]))
            if style == tarfile.PAX_FORMAT:
                info.pax_headers = draw(
                    st.dictionaries(
                        st.sampled_from(["path", "linkpath", "size", "mtime", "comment"]),
                        st.sampled_from(["", "nan", "inf", "-1", "1", "99999999999999999999", "../../up", "a\nb"]),
                        max_size=2,
                    )
                )
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@st.composite
def zip_archives(draw: st.DrawFn) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        members = draw(st.lists(st.tuples(NAMES, st.integers(0, 0xFFFF), st.binary(max_size=600)), max_size=10))
        by_name = {name.replace("\0", "?"): (mode, data) for name, mode, data in members}
        for name, (mode, data) in by_name.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return buffer.getvalue()


@st.composite
def damaged(draw: st.DrawFn, archives: st.SearchStrategy[bytes]) -> bytes:
    """A few bytes changed, perhaps cut off. Sums of tar headers are made right, or nothing behind them is read."""
    data = bytearray(draw(archives))
    for _ in range(draw(st.integers(0, 4)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    for at in range(0, len(data) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % (sum(data[at : at + 512]) & 0o777777)
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


def packed(draw_from: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    ways: list[Callable[[bytes], bytes]] = [
        bytes, gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress,
    ]  # fmt: skip
    return st.tuples(draw_from, st.sampled_from(ways)).map(lambda pair: pair[1](pair[0]))


def unpacked(write: Callable[[Path, TreeWriter, UnpackBudget], None]) -> None:
    """Unpacks into a directory of its own, and looks at what came of it."""
    with tempfile.TemporaryDirectory() as scratch:
        outside, root = Path(scratch), Path(scratch, "deep", "root")
        root.mkdir(parents=True)
        descriptor = os.open(root, DIRECTORY_FLAGS)
        budget = UnpackBudget(LIMITS, SystemClock(), disk_bytes=1 << 30)
        tree = TreeWriter(descriptor, budget, CancelToken())
        try:
            write(outside / "archive", tree, budget)
            tree.finish()
        except ArtifactError:
            pass
        finally:
            tree.close()
            os.close(descriptor)
        for found in root.rglob("*"):
            if found.is_symlink():
                assert Path(os.path.realpath(found)).is_relative_to(os.path.realpath(root)), os.readlink(found)
            assert not found.stat(follow_symlinks=False).st_mode & 0o7022 or found.is_symlink() or found.is_dir()
        assert {path.name for path in outside.iterdir()} <= {"archive", "deep"}
        assert [path.name for path in (outside / "deep").iterdir()] == ["root"]


@given(packed(damaged(tar_archives())))
@BOUNDED
def test_any_tar_stays_inside_or_is_refused(data: bytes) -> None:
    def write(_path: Path, tree: TreeWriter, _budget: UnpackBudget) -> None:
        chunks = inflate(iter([data[:700], data[700:]]), classify_compression(data[:16]))
        unpack_tar(chunks, tree, depth=LIMITS.depth, whiteouts=True)

    unpacked(write)


@given(damaged(zip_archives()), st.booleans())
@BOUNDED
def test_any_zip_stays_inside_or_is_refused(data: bytes, as_wheel: bool) -> None:
    def write(path: Path, tree: TreeWriter, budget: UnpackBudget) -> None:
        path.write_bytes(data)
        unpack_zip(path, tree, budget, CancelToken(), place=wheel_path if as_wheel else None)

    unpacked(write)


@given(st.binary(max_size=2000), st.sampled_from([b"", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"]))
@BOUNDED
def test_any_bytes_are_a_tar_or_refused(data: bytes, magic: bytes) -> None:
    def write(_path: Path, tree: TreeWriter, _budget: UnpackBudget) -> None:
        whole = magic + data
        unpack_tar(inflate(iter([whole]), classify_compression(whole)), tree, depth=LIMITS.depth, whiteouts=True)

    unpacked(write)


@given(st.binary(max_size=200), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF))
@BOUNDED
def test_any_end_record_of_a_zip_is_measured_before_it_is_believed(data: bytes, members: int, size: int) -> None:
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, members, members, size, 0, 0)

    def write(path: Path, tree: TreeWriter, budget: UnpackBudget) -> None:
        path.write_bytes(b"PK\x03\x04" + data + end)
        unpack_zip(path, tree, budget, CancelToken(), place=None)

    unpacked(write)
