"""S3 objects as a source of artifacts, fetched by the same outbound client as every other source."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob
from corral.artifacts.content.http_source import HttpSource
from corral.artifacts.content.pieces import FilePiece, ResolvedArtifact
from corral.artifacts.digests import Digest, digest_of, sha256_digest
from corral.artifacts.errors import BadReference, SourceUnavailable
from corral.artifacts.net.client import Outbound
from corral.artifacts.references import S3Object
from corral.artifacts.sources.local import archive_piece
from corral.system import Clock
from corral.system.s3 import S3Settings, parse_xml, sign

LISTING_BYTES = 16 << 20
MAX_PAGES = 100


class S3Client:
    def __init__(self, outbound: Outbound, settings: S3Settings, clock: Clock) -> None:
        self._outbound = outbound
        self._settings = settings
        self._clock = clock

    def resolve(self, reference: S3Object, cancel: CancelToken, sha256: Digest | None) -> ResolvedArtifact:
        """One object, or everything below a key that ends in a slash."""
        if reference.key.endswith("/"):
            return self._prefix(reference, cancel)
        url = self._settings.url(reference.bucket, reference.key)
        response, _ = self._outbound.fetch(
            url,
            cancel=cancel,
            limit=0,
            method="HEAD",
            headers=self._signed("HEAD", url, {"x-amz-checksum-mode": "ENABLED"}),
        )
        length = response.headers.get("content-length", "")
        digest = sha256 or _checksum(response.headers)
        blob = self._blob(
            reference.bucket,
            reference.key,
            int(length) if length.isdigit() else None,
            response.headers.get("etag", ""),
            digest,
        )
        return ResolvedArtifact(
            digest=digest,
            source=str(reference),
            pieces=(archive_piece(reference.key.rpartition("/")[2], blob),),
            verified_by="sha256 from gallery" if sha256 else ("s3 checksum" if digest else "first download"),
        )

    def _prefix(self, reference: S3Object, cancel: CancelToken) -> ResolvedArtifact:
        listed = self._list(reference, cancel)
        pieces = tuple(
            FilePiece(blob=self._blob(reference.bucket, key, size, etag, None), path=key.removeprefix(reference.key))
            for key, size, etag in listed
            if not key.endswith("/")
        )
        if not pieces:
            raise BadReference(f"{reference} contains no objects.")
        named = "\n".join(f"{key}\0{size}\0{etag}" for key, size, etag in listed)
        return ResolvedArtifact(
            digest=digest_of(f"{reference}\n{named}".encode()),
            source=str(reference),
            pieces=pieces,
            verified_by="entity tags of the listing",
        )

    def _list(self, reference: S3Object, cancel: CancelToken) -> list[tuple[str, int, str]]:
        found: list[tuple[str, int, str]] = []
        token = ""
        for _ in range(MAX_PAGES):
            query = {"list-type": "2", "prefix": reference.key}
            if token:
                query["continuation-token"] = token
            url = f"{self._settings.url(reference.bucket, '')}?{urlencode(sorted(query.items()), quote_via=quote)}"
            _, body = self._outbound.fetch(
                url, cancel=cancel, limit=LISTING_BYTES, headers=self._signed("GET", url, {})
            )
            page, token = _listing(body)
            found += page
            if not token:
                return found
        raise BadReference(f"{reference} contains more than {MAX_PAGES} pages of objects.")

    def _blob(self, bucket: str, key: str, size: int | None, etag: str, digest: Digest | None) -> Blob:
        url = self._settings.url(bucket, key)
        return Blob(
            name=key.rpartition("/")[2],
            digest=digest,
            size=size,
            sources=(
                HttpSource(
                    outbound=self._outbound, url=url, headers=lambda: self._signed("GET", url, {}), validator=etag
                ),
            ),
            identity=f"{url}\0{etag}\0{size}",
        )

    def _signed(self, method: str, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        return sign(
            self._settings, method, url, headers, at=datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC)
        )


def _checksum(headers: Mapping[str, str]) -> Digest | None:
    """S3 stores a SHA-256 if the uploader sent one. For multipart uploads it covers only the parts' hashes."""
    encoded = headers.get("x-amz-checksum-sha256", "")
    if not encoded or "-" in encoded or headers.get("x-amz-checksum-type", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    raw = b64decode(encoded, validate=True)
    return sha256_digest(raw.hex()) if len(raw) == 32 else None


def _listing(body: bytes) -> tuple[list[tuple[str, int, str]], str]:
    try:
        root = parse_xml(body)
    except ValueError as error:
        raise SourceUnavailable(f"The S3 listing cannot be read: {error}.") from error
    found = [
        (item.findtext("{*}Key", ""), int(item.findtext("{*}Size", "0")), item.findtext("{*}ETag", ""))
        for item in root.findall("{*}Contents")
    ]
    return found, root.findtext("{*}NextContinuationToken", "")
