"""Files into a real bucket, by their digest."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from corral.core.errors import Unavailable
from corral.system import SystemClock, SystemIds
from corral.system.buckets import PREFIX, WeightsBucket
from corral.system.local_files import LocalFile
from corral.system.s3 import PART_BYTES, S3Bucket, S3Settings
from harness.s3 import ACCESS_KEY, SECRET_KEY, S3Server


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    yield server
    server.stop()


def open_bucket(url: str, access_key: str, secret_key: str) -> WeightsBucket:
    settings = S3Settings(endpoint=url, access_key=access_key, secret_key=secret_key)
    return WeightsBucket(S3Bucket(settings, "shared", clock=SystemClock(), ids=SystemIds()))


async def test_a_file_is_put_once_whole_and_told_by_its_address(s3: S3Server, tmp_path: Path) -> None:
    store = await asyncio.to_thread(s3.make_bucket, "shared")
    bucket = open_bucket(s3.url, ACCESS_KEY, SECRET_KEY)
    for size in (0, 1000, 2 * PART_BYTES + 17):
        content = os.urandom(size)
        path = tmp_path / "weights.bin"
        path.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        moved: list[int] = []
        file = LocalFile("models/weights.bin", path, size)
        for _ in range(2):
            address = await bucket.put(file, sha256=sha256, on_bytes=moved.append)
            assert address == f"s3://shared/{PREFIX}/{sha256}"
        assert sum(moved) == size, "the second time it is there"
        assert bytes((await obstore.get_async(store, f"{PREFIX}/{sha256}")).bytes()) == content
    wrong = open_bucket(s3.url, "x", "y")
    with pytest.raises(Unavailable, match="could not be put into the shared storage"):
        await wrong.put(file, sha256="0" * 64, on_bytes=moved.append)
