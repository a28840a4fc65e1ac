"""What the addresses of weights were resolved to, so that files that are already here need no origin."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from corral.artifacts.content.blobs import Blob
from corral.artifacts.digests import Digest
from corral.artifacts.errors import disk_errors
from corral.system.json import decode_json


class KnownFile(msgspec.Struct, frozen=True):
    name: str
    digest: str
    size: int
    identity: str = ""
    """Address, entity tag and size, or Git object id, of a file without a digest of its own."""


class _KnownWeights(msgspec.Struct, frozen=True):
    uri: str
    files: list[KnownFile]


class KnownWeights:
    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, uri: str) -> list[KnownFile]:
        """The files of the address when it was fetched last, in order. Empty if it never was."""
        try:
            known = decode_json(self._path(uri).read_bytes(), _KnownWeights)
        except (FileNotFoundError, msgspec.DecodeError):
            return []
        return known.files if known.uri == uri else []

    def remember(self, uri: str, files: Sequence[KnownFile], *, token: str) -> None:
        path = self._path(uri)
        if self.find(uri) == list(files):
            return
        with disk_errors(f"noting the origin of {files[0].name}"):
            self._root.mkdir(parents=True, exist_ok=True)
            staged = path.with_name(f".{path.name}.{token}")
            try:
                staged.write_bytes(msgspec.json.encode(_KnownWeights(uri, list(files))))
                staged.replace(path)
            finally:
                staged.unlink(missing_ok=True)

    def forget(self, kept: set[Digest]) -> None:
        """Removes notes of which no file is here any more."""
        if not self._root.is_dir():
            return
        for path in self._root.iterdir():
            try:
                known = decode_json(path.read_bytes(), _KnownWeights)
            except msgspec.DecodeError:
                path.unlink(missing_ok=True)
                continue
            if not any(file.digest in kept for file in known.files):
                path.unlink(missing_ok=True)

    def _path(self, uri: str) -> Path:
        return self._root / hashlib.sha256(uri.encode()).hexdigest()


def same_digest(known: Sequence[KnownFile], blob: Blob) -> Digest | None:
    """The digest of a file that has none of its own and has not changed at its origin since it was fetched."""
    if blob.digest is not None or not blob.resumable or not blob.identity:
        return None
    return next((Digest(file.digest) for file in known if file.identity == blob.identity), None)
