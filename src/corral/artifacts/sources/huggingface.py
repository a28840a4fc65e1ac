"""Files and snapshots of a Hugging Face repository. A revision is pinned to its commit before anything is fetched."""

import hashlib
import re
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob
from corral.artifacts.content.http_source import HttpSource
from corral.artifacts.content.pieces import FilePiece, ResolvedArtifact
from corral.artifacts.digests import Digest, digest_of, sha256_digest
from corral.artifacts.errors import BadReference, DigestMismatch, SourceUnavailable
from corral.artifacts.net.client import Outbound
from corral.artifacts.references import HuggingFace
from corral.artifacts.settings import HuggingFaceSettings
from corral.system.json import decode_json

Document = TypeVar("Document")

LISTING_BYTES = 32 << 20
MAX_PAGES = 100

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class _Lfs(msgspec.Struct):
    oid: str
    size: int


class _TreeEntry(msgspec.Struct):
    type: str
    path: str
    oid: str = ""
    size: int = 0
    lfs: _Lfs | None = None


class _Revision(msgspec.Struct):
    sha: str


class HuggingFaceHub:
    def __init__(self, outbound: Outbound, settings: HuggingFaceSettings) -> None:
        self._outbound = outbound
        self._endpoint = settings.endpoint.rstrip("/")
        self._token = settings.token

    def resolve(self, reference: HuggingFace, cancel: CancelToken, sha256: Digest | None) -> ResolvedArtifact:
        if reference.path:
            return self._file(reference, cancel, sha256)
        return self._snapshot(reference, cancel)

    def _headers(self) -> dict[str, str]:
        # The client drops this header when the hub redirects to its storage hosts.
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _file(self, reference: HuggingFace, cancel: CancelToken, sha256: Digest | None) -> ResolvedArtifact:
        url = self._url(reference.repository, reference.revision, reference.path)
        response, _ = self._outbound.fetch(
            url, cancel=cancel, limit=0, method="HEAD", headers=self._headers(), accept_statuses=_REDIRECTS
        )
        headers = response.headers
        commit = headers.get("x-repo-commit", "")
        etag = (headers.get("x-linked-etag") or headers.get("etag", "")).removeprefix("W/").strip('"')
        length = headers.get("x-linked-size") or headers.get("content-length", "")
        known_size = response.status not in _REDIRECTS or "x-linked-size" in headers
        piece = self._piece(
            reference.repository,
            commit if _COMMIT.match(commit) else reference.revision,
            reference.path,
            size=int(length) if known_size and length.isdigit() else None,
            oid=etag,
            sha256=sha256,
        )
        return ResolvedArtifact(
            digest=piece.blob.digest,
            source=str(
                HuggingFace(repository=reference.repository, path=reference.path, revision=commit or reference.revision)
            ),
            pieces=(piece,),
            verified_by="sha256 from gallery" if sha256 else ("hub sha256" if piece.blob.digest else "git object id"),
            version=commit[:12],
        )

    def _snapshot(self, reference: HuggingFace, cancel: CancelToken) -> ResolvedArtifact:
        base = f"{self._endpoint}/api/models/{quote(reference.repository)}"
        _, body = self._outbound.fetch(
            f"{base}/revision/{quote(reference.revision, safe='')}",
            cancel=cancel,
            limit=LISTING_BYTES,
            headers=self._headers(),
        )
        commit = _decode(_Revision, body).sha
        if not _COMMIT.match(commit):
            raise SourceUnavailable(f"The hub names no commit for {reference}.")
        entries = self._tree(f"{base}/tree/{commit}?recursive=true", cancel)
        pieces = tuple(
            self._piece(
                reference.repository,
                commit,
                entry.path,
                size=entry.lfs.size if entry.lfs else entry.size,
                oid=entry.lfs.oid if entry.lfs else entry.oid,
                sha256=None,
            )
            for entry in entries
            if entry.type == "file" and entry.path != ".gitattributes"
        )
        if not pieces:
            raise BadReference(f"{reference} contains no files.")
        named = "\n".join(f"{piece.path}\0{piece.blob.digest or piece.blob.git_oid}" for piece in pieces)
        return ResolvedArtifact(
            digest=digest_of(f"{commit}\n{named}".encode()),
            source=str(HuggingFace(repository=reference.repository, revision=commit)),
            pieces=pieces,
            verified_by="hub sha256 and git object ids",
            version=commit[:12],
        )

    def _tree(self, url: str, cancel: CancelToken) -> list[_TreeEntry]:
        entries: list[_TreeEntry] = []
        for _ in range(MAX_PAGES):
            response, body = self._outbound.fetch(url, cancel=cancel, limit=LISTING_BYTES, headers=self._headers())
            entries += _decode(list[_TreeEntry], body)
            following = _NEXT.search(response.headers.get("link", ""))
            if following is None:
                return entries
            if urlsplit(following.group(1)).netloc != urlsplit(self._endpoint).netloc:
                raise SourceUnavailable("The hub's listing continues at another host, which is not followed.")
            url = following.group(1)
        raise BadReference(f"The repository has more than {MAX_PAGES} pages of files.")

    def _piece(
        self, repository: str, commit: str, path: str, *, size: int | None, oid: str, sha256: Digest | None
    ) -> FilePiece:
        digest = sha256 or (sha256_digest(oid) if re.fullmatch(r"[0-9a-f]{64}", oid) else None)
        url = self._url(repository, commit, path)
        return FilePiece(
            blob=Blob(
                name=path,
                digest=digest,
                size=size,
                sources=(HttpSource(outbound=self._outbound, url=url, headers=self._headers),),
                git_oid=oid if digest is None and _COMMIT.match(oid) else "",
                identity=f"{url}\0{oid}\0{size}",
            ),
            path=path,
        )

    def _url(self, repository: str, revision: str, path: str) -> str:
        return f"{self._endpoint}/{quote(repository)}/resolve/{quote(revision, safe='')}/{quote(path)}"


def _decode(kind: type[Document], body: bytes) -> Document:
    try:
        return decode_json(body, kind)
    except msgspec.DecodeError as error:
        raise SourceUnavailable(f"The hub sent an invalid response: {error}.") from error


def check_git_oid(content: bytes, oid: str, name: str) -> None:
    """Git identifies a file by SHA-1 over a header and its content. That is weak against forgery, but the commit pins
    it."""
    found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if found != oid:
        raise DigestMismatch(f"{name} is Git object {found} instead of {oid}; the download was discarded.")
