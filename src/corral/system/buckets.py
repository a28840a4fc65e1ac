"""A bucket of an S3-compatible storage that frontends and workers share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corral.core.errors import Conflict, Unavailable
from corral.system.local_files import LocalFile

if TYPE_CHECKING:
    from obstore.store import S3Store

PART_BYTES = 8 << 20
STALL_S = 120.0
PREFIX = "corral/weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSettings:
    url: str
    bucket: str
    region: str
    access_key: str = ""
    """Empty for a storage that asks nobody."""
    secret_key: str = field(default="", repr=False)


def open_bucket(settings: BucketSettings) -> "S3Store":
    from obstore.store import S3Store

    return S3Store(
        settings.bucket,
        endpoint=settings.url.rstrip("/"),
        region=settings.region,
        access_key_id=settings.access_key or None,
        secret_access_key=settings.secret_key or None,
        skip_signature=not settings.access_key,
        client_options={"allow_http": settings.url.startswith("http://")},
    )


class WeightsBucket:
    """Files by their digest: what is there is not sent again, whichever model and frontend it came from."""

    def __init__(self, settings: BucketSettings) -> None:
        self._settings = settings
        self._store = open_bucket(settings)

    @property
    def place(self) -> str:
        return f"{self._settings.url.rstrip('/')}/{self._settings.bucket}"

    async def delete(self, sha256: str) -> None:
        """Nothing there is done already."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            async with asyncio.timeout(STALL_S):
                await obstore.delete_async(self._store, f"{PREFIX}/{sha256}")
        except FileNotFoundError:
            pass
        except (BaseError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise Unavailable(
                f"{PREFIX}/{sha256} could not be deleted from the shared storage {self.place}: {why}"
            ) from error

    async def put(self, file: LocalFile, *, sha256: str, on_bytes: Callable[[int], None]) -> str:
        """The address workers fetch it from. The object appears when it is whole, or not at all."""
        import obstore
        from obstore.exceptions import BaseError

        key = f"{PREFIX}/{sha256}"
        address = f"s3://{self._settings.bucket}/{key}"
        try:
            async with asyncio.timeout(STALL_S) as limit:
                try:
                    meta = await obstore.head_async(self._store, key)
                    if meta["size"] == file.size:
                        return address
                except FileNotFoundError:
                    pass
                if file.size <= PART_BYTES:
                    await obstore.put_async(self._store, key, await asyncio.to_thread(file.path.read_bytes))
                    on_bytes(file.size)
                else:
                    await obstore.put_async(
                        self._store, key, _parts(file, on_bytes, limit), use_multipart=True, chunk_size=PART_BYTES
                    )
        except (BaseError, TimeoutError) as error:
            why = str(error) or f"nothing moved for {STALL_S:.0f} s"
            raise Unavailable(
                f"{file.path.name} could not be put into the shared storage {self._settings.url}: {why}"
            ) from error
        return address


async def _parts(file: LocalFile, on_bytes: Callable[[int], None], limit: asyncio.Timeout) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    left = file.size
    with file.path.open("rb", buffering=0) as source:
        while left:
            part = await asyncio.to_thread(source.read, min(PART_BYTES, left))
            if not part:
                raise Conflict(f"{file.path} became shorter while it was sent")
            left -= len(part)
            yield part
            limit.reschedule(loop.time() + STALL_S)
            on_bytes(len(part))
