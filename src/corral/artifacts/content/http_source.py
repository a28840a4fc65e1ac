"""A blob at an HTTP address, resumed by range requests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import BlobStream
from corral.artifacts.errors import SourceUnavailable
from corral.artifacts.net.client import Outbound, Response

Headers = Callable[[], Mapping[str, str]]


def _no_headers() -> Mapping[str, str]:
    return {}


@dataclass(slots=True)
class _HttpStream:
    offset: int
    total: int | None
    response: Response

    def read(self, count: int) -> bytes:
        return self.response.read(count)


@dataclass(slots=True)
class _NothingMore:
    offset: int
    total: int | None

    def read(self, count: int) -> bytes:
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource:
    outbound: Outbound
    url: str
    headers: Headers = _no_headers
    """Called for every request, because tokens and signatures expire during a long download."""
    validator: str = ""
    """A strong entity tag: a download is resumed only if the file has not changed."""

    @property
    def label(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname}{parts.path}"  # without the query, which may hold a signature

    @contextmanager
    def open(self, offset: int, cancel: CancelToken) -> Iterator[BlobStream]:
        headers = dict(self.headers())
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if self.validator:
                headers["If-Range"] = self.validator
        with self.outbound.open(self.url, cancel=cancel, headers=headers, accept_statuses=frozenset({416})) as response:
            if response.status == 416:
                # Nothing lies beyond what we have; the size the server names decides whether that is all.
                yield _NothingMore(offset=offset, total=_total_of(response))
                return
            start, total = _range_of(response, offset)
            yield _HttpStream(offset=start, total=total, response=response)


def _total_of(response: Response) -> int | None:
    _, _, total = response.headers.get("content-range", "").partition("/")
    return int(total) if total.isdigit() else None


def _range_of(response: Response, wanted: int) -> tuple[int, int | None]:
    if response.status != 206:
        return 0, response.length
    described, _, _ = response.headers.get("content-range", "").partition("/")
    start = described.removeprefix("bytes ").partition("-")[0].strip()
    if not start.isdigit() or int(start) > wanted:
        raise SourceUnavailable(f"{urlsplit(response.url).hostname} returned a different range than requested.")
    total = _total_of(response)
    if total is None and response.length is not None:
        total = int(start) + response.length
    return int(start), total
