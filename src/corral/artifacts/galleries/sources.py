"""Reads galleries from their addresses, and from a cached copy when an address cannot be reached."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import BlobStore
from corral.artifacts.content.pieces import FilePiece
from corral.artifacts.digests import digest_of, hex_of
from corral.artifacts.errors import (
    ArtifactError,
    BadGallery,
    BadReference,
    PolicyRefused,
    SourceRejected,
    SourceUnavailable,
    disk_errors,
)
from corral.artifacts.install.resolve import SourceResolver
from corral.artifacts.net.client import Outbound
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.references import HttpFile, LocalPath, OciImage, Reference, parse_reference
from corral.artifacts.settings import GallerySettings
from corral.system import Clock, Ids
from corral.system.json import decode_json

INDEX_BYTES = 64 << 20
INDEX_NAMES = ("index.yaml", "index.yml", "gallery.yaml")


class _Cached(msgspec.Struct):
    url: str
    fetched_ms: int
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryText:
    content: bytes
    url: str
    age_s: float
    """Time since this text was last known to be current."""
    stale_because: str = ""
    """Why the source could not be read. Empty if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GallerySources:
    cache_dir: Path
    outbound: Outbound
    resolver: SourceResolver
    blobs: BlobStore
    clock: Clock
    ids: Ids

    def read(self, gallery: GallerySettings, cancel: CancelToken) -> GalleryText:
        """The gallery's text from its address, else from its mirrors, else from the cached copy."""
        return self.read_any((gallery.url, *gallery.mirrors), cancel)

    def read_any(self, urls: tuple[str, ...], cancel: CancelToken) -> GalleryText:
        problems: list[ArtifactError] = []
        for url in urls:
            try:
                return self._read_one(url, cancel)
            except (SourceUnavailable, SourceRejected, PolicyRefused, BadGallery) as error:
                problems.append(error)
        kept = self._kept(urls, because=" ".join(map(str, problems)))
        if kept is not None:
            return kept
        if not problems:
            raise BadReference("A gallery has no address.")
        raise problems[0]

    def read_kept(self, gallery: GallerySettings) -> GalleryText:
        """The cached copy, without any request."""
        kept = self._kept((gallery.url, *gallery.mirrors), because="")
        if kept is None:
            raise SourceUnavailable(f"Gallery {gallery.name} has not been read yet.")
        return kept

    def _kept(self, urls: tuple[str, ...], *, because: str) -> GalleryText | None:
        for url in urls:
            cached = self._cached(url)
            if cached is not None:
                meta, content = cached
                return GalleryText(content=content, url=url, age_s=self._age_s(meta), stale_because=because)
        return None

    def _read_one(self, url: str, cancel: CancelToken) -> GalleryText:
        reference = parse_reference(url)
        match reference:
            case HttpFile(url=address):
                return self._http(url, address, cancel)
            case LocalPath(path=path):
                content = _local(path)
            case OciImage():
                content = self._oci(reference, cancel)
            case _:
                raise BadReference(f"{url[:200]} is not a gallery address; use https, file, a directory or oci.")
        self._keep(url, content, "")
        return GalleryText(content=content, url=url, age_s=0.0)

    def _http(self, url: str, address: str, cancel: CancelToken) -> GalleryText:
        cached = self._cached(url)
        headers = {"If-None-Match": cached[0].etag} if cached and cached[0].etag else {}
        response, body = self.outbound.fetch(
            address, cancel=cancel, limit=INDEX_BYTES, headers=headers, accept_statuses=frozenset({304})
        )
        if response.status == 304 and cached:
            body = cached[1]
        elif address.endswith(".ref"):
            # The file holds the index's path relative to itself.
            target = urljoin(address, body.decode("utf-8", "replace").strip())
            _, body = self.outbound.fetch(target, cancel=cancel, limit=INDEX_BYTES)
        _check_is_sequence(body)
        self._keep(url, body, response.headers.get("etag", ""))
        return GalleryText(content=body, url=url, age_s=0.0)

    def _oci(self, reference: Reference, cancel: CancelToken) -> bytes:
        """An artifact that holds an index file, as `oras push` makes one."""
        resolved = self.resolver.resolve(reference, cancel)
        for piece in resolved.pieces:
            if isinstance(piece, FilePiece) and piece.path.endswith((".yaml", ".yml")):
                if (piece.blob.size or 0) > INDEX_BYTES:
                    break
                digest = self.blobs.fetch(piece.blob, cancel, ProgressMeter(None, self.clock))
                return self.blobs.path(digest).read_bytes()
        raise BadGallery(f"{reference} contains no YAML file within the size limit.")

    def _paths(self, url: str) -> tuple[Path, Path]:
        stem = hex_of(digest_of(url.encode()))
        return self.cache_dir / f"{stem}.json", self.cache_dir / f"{stem}.yaml"

    def _cached(self, url: str) -> tuple[_Cached, bytes] | None:
        meta_path, text_path = self._paths(url)
        try:
            return decode_json(meta_path.read_bytes(), _Cached), text_path.read_bytes()
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return None

    def _keep(self, url: str, content: bytes, etag: str) -> None:
        meta_path, text_path = self._paths(url)
        meta = _Cached(url=url, fetched_ms=self.clock.now_ms(), etag=etag)
        with disk_errors("keeping a gallery"):
            self.cache_dir.mkdir(parents=True, exist_ok=True)
            # The text first: a crash between the two leaves an old date on a new text, which is harmless.
            for path, data in ((text_path, content), (meta_path, msgspec.json.encode(meta))):
                staged = path.with_name(f"{path.name}.{self.ids.uuid()}")
                staged.write_bytes(data)
                os.replace(staged, path)

    def _age_s(self, meta: _Cached) -> float:
        return max(0.0, (self.clock.now_ms() - meta.fetched_ms) / 1000)


def _check_is_sequence(content: bytes) -> None:
    """A captive portal's page or an error text must not replace the cached copy."""
    head = content.lstrip()[:1]
    if head in (b"<", b"{", b""):
        raise BadGallery("The address returned something that is not a gallery.")


def _local(path: Path) -> bytes:
    if path.is_dir():
        found = [path / name for name in INDEX_NAMES if (path / name).is_file()]
        if found:
            return _bounded(found[0])
        parts = sorted(path.glob("*.yaml"))
        if not parts:
            raise SourceRejected(f"{path} contains no index.yaml.", status=404)
        return b"\n".join(_bounded(part) for part in parts)
    return _bounded(path)


def _bounded(path: Path) -> bytes:
    try:
        if path.stat().st_size > INDEX_BYTES:
            raise BadGallery(f"{path} is larger than {INDEX_BYTES >> 20} MiB, the limit for a gallery.")
        return path.read_bytes()
    except (FileNotFoundError, PermissionError) as error:
        raise SourceRejected(f"{path} cannot be read: {error.strerror}.", status=404) from error
