"""Weights in the bucket that frontends and workers share."""

import asyncio
from collections.abc import Callable

from corral.core.errors import NotFound, Unavailable
from corral.system.local_files import LocalFile
from corral.system.s3 import S3Bucket

PREFIX = "corral/weights"


class WeightsBucket:
    """Files stored by digest. A file that is there is not sent again, whichever model and frontend it came from."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket

    @property
    def place(self) -> str:
        return self._bucket.address

    async def delete(self, sha256: str) -> None:
        """Deletes a file. A missing one is not an error."""
        key = f"{PREFIX}/{sha256}"
        try:
            await self._bucket.delete(key)
        except Unavailable as error:
            raise Unavailable(f"{key} could not be deleted from the shared storage {self.place}: {error}") from error

    async def put(self, file: LocalFile, *, sha256: str, on_bytes: Callable[[int], None]) -> str:
        """Stores a file and returns the address that workers fetch it from."""
        key = f"{PREFIX}/{sha256}"
        try:
            if not await self._has(key, file.size):
                with await asyncio.to_thread(file.path.open, "rb", buffering=0) as source:
                    await self._bucket.put(key, source, file.size, on_bytes=on_bytes)
        except Unavailable as error:
            raise Unavailable(
                f"{file.path.name} could not be put into the shared storage {self.place}: {error}"
            ) from error
        return f"s3://{self._bucket.name}/{key}"

    async def _has(self, key: str, size: int) -> bool:
        try:
            return (await self._bucket.read_info(key)).size == size
        except NotFound:
            return False
