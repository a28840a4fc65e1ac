"""Files as a frontend sends them: over a line that breaks, several at once, to a disk that is full."""

import asyncio
import hashlib
import os
from functools import partial
from pathlib import Path

import pytest

from corral.core.errors import Unavailable
from corral.system.file_upload import upload
from corral.system.local_files import HashCache, LocalFile, list_files
from corral.system.worker_files import FileServer
from harness.file_server import RunningFileServer
from harness.network_cuts import CuttingProxy

SIZE = 9_000_000
CUT_AFTER = 1_000_000
TOKEN = "files-token"


def make_file(directory: Path, size: int = SIZE) -> LocalFile:
    path = directory / "weights.bin"
    path.write_bytes(os.urandom(size))
    return LocalFile("models/weights.bin", path, size)


async def _upload(server: FileServer, file: LocalFile, sha256: str) -> int:
    return await upload(server, file, sha256=sha256)


def send(port: int, *files: LocalFile, sha256: str | None = None) -> list[int]:
    async def run() -> list[int]:
        server = FileServer(f"http://127.0.0.1:{port}", TOKEN)
        book = HashCache()
        sums = [sha256 or await book.sha256(file.path) for file in files]
        return await asyncio.gather(*map(partial(_upload, server), files, sums))

    return asyncio.run(run())


def test_no_byte_crosses_a_line_twice_that_breaks_all_the_time(server: RunningFileServer, tmp_path: Path) -> None:
    file = make_file(tmp_path)
    line = CuttingProxy(server.port, CUT_AFTER)
    try:
        send(line.port, file)
    finally:
        line.close()
    assert (server.root / "models" / "weights.bin").read_bytes() == file.path.read_bytes()
    assert line.cuts >= SIZE // CUT_AFTER
    headers = line.cuts * 2 * 1024
    assert line.bytes_up - SIZE < headers


def test_what_is_there_is_not_sent_again(server: RunningFileServer, tmp_path: Path) -> None:
    file = make_file(tmp_path)
    assert send(server.port, file) == [SIZE]
    assert send(server.port, file) == [0]


def test_several_senders_of_one_file_take_turns(server: RunningFileServer, tmp_path: Path) -> None:
    file = make_file(tmp_path)
    assert sum(send(server.port, file, file, file)) == SIZE
    assert (server.root / "models" / "weights.bin").read_bytes() == file.path.read_bytes()


def test_a_file_that_does_not_fit_is_refused_before_a_byte_is_sent(server: RunningFileServer, tmp_path: Path) -> None:
    path = tmp_path / "huge.bin"
    with path.open("wb") as sparse:
        sparse.truncate(8 << 40)
    line = CuttingProxy(server.port, CUT_AFTER)
    try:
        with pytest.raises(Unavailable, match=r"50 GiB|exceeds the free space"):
            send(line.port, LocalFile("models/huge.bin", path, 8 << 40), sha256="0" * 64)
    finally:
        line.close()
    assert line.bytes_up < 2048


def test_a_part_that_somebody_changed_is_noticed_at_the_end(server: RunningFileServer, tmp_path: Path) -> None:
    """The hash of what came before is kept in memory: only for the file as it was left."""
    data = os.urandom(3000)
    sha = hashlib.sha256(data).hexdigest()
    half = server.call("PUT", "/v1/files/models/a", data[:1000], Content_Range="bytes 0-999/3000", X_Content_SHA256=sha)
    assert half.status == 308
    kept = server.root / "models" / "a"
    before = kept.stat()
    kept.write_bytes(bytes(1000))
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    rest = server.call(
        "PUT", "/v1/files/models/a", data[1000:], Content_Range="bytes 1000-2999/3000", X_Content_SHA256=sha
    )
    assert (rest.status, kept.exists()) == (400, False)


def test_directories_are_sent_with_all_that_is_in_them_and_links_lead_nowhere(
    server: RunningFileServer, tmp_path: Path
) -> None:
    root = tmp_path / "frontend"
    (root / "mine" / "deep").mkdir(parents=True)
    (root / "mine" / "deep" / "part.bin").write_bytes(b"part")
    (root / "mine" / "empty.json").write_bytes(b"")
    (root / "mine" / "link").symlink_to("/etc/passwd")
    files = list_files(root, "mine", prefix="models/")
    send(server.port, *files)
    sent = {path.name for path in (server.root / "models" / "mine").rglob("*") if path.suffix in (".bin", ".json")}
    assert sent == {"part.bin", "empty.json"}
    assert not (server.root / "models" / "mine" / "link").exists()
