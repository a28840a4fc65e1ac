"""A file at an HTTP(S) address: its size, and whether an interrupted download can be resumed."""

from urllib.parse import unquote, urlsplit

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob
from corral.artifacts.content.http_source import HttpSource
from corral.artifacts.digests import Digest
from corral.artifacts.errors import SourceRejected
from corral.artifacts.net.client import Outbound

_HEAD_REFUSED = {400, 403, 405, 501}


def describe_download(outbound: Outbound, url: str, digest: Digest | None, cancel: CancelToken) -> Blob:
    """Asks for size and entity tag first: the size for disk space, the tag so that a changed file is not resumed."""
    size: int | None = None
    validator = ""
    try:
        response, _ = outbound.fetch(url, cancel=cancel, limit=0, method="HEAD")
        length = response.headers.get("content-length", "")
        size = int(length) if length.isdigit() else None
        tag = response.headers.get("etag", "")
        validator = tag if not tag.startswith("W/") else ""
        validator = validator or response.headers.get("last-modified", "")
    except SourceRejected as error:
        if error.status not in _HEAD_REFUSED:
            raise
    name = unquote(urlsplit(url).path).rpartition("/")[2] or urlsplit(url).hostname or "download"
    return Blob(
        name=name,
        digest=digest,
        size=size,
        sources=(HttpSource(outbound=outbound, url=url, validator=validator),),
        resumable=digest is not None or bool(validator),
        identity=f"{url}\0{validator}\0{size}",
    )
