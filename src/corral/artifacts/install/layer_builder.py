"""Turns one piece into an unpacked layer: fetches, hashes, decompresses and writes at the same time."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import assert_never

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import BlobStore
from corral.artifacts.content.layers import LayerIndex
from corral.artifacts.content.pieces import FilePiece, MemberPiece, Piece, TarPiece, TreePiece, WheelPiece, ZipPiece
from corral.artifacts.digests import Digest, hex_of
from corral.artifacts.errors import DigestMismatch, UnpackedTooLarge, UnsafeArchive
from corral.artifacts.progress import ProgressMeter
from corral.artifacts.pypi.wheels import site_packages, wheel_path
from corral.artifacts.unpack.budget import RatioGuard, UnpackBudget
from corral.artifacts.unpack.inflate import classify_compression, inflate
from corral.artifacts.unpack.local_tree import copy_tree
from corral.artifacts.unpack.pipeline import run_ahead
from corral.artifacts.unpack.tar import unpack_tar
from corral.artifacts.unpack.tree import TreeWriter, member_parts
from corral.artifacts.unpack.zip import read_member, unpack_zip

CHUNKS_AHEAD = 8  # packed, 256 KiB each
OUTPUTS_AHEAD = 8  # unpacked, 256 KiB each


def layer_key(piece: Piece) -> str | None:
    """The key of the unpacked layer, or None when it is known only after the download."""
    match piece:
        case TarPiece(diff_id=diff_id) if diff_id is not None:
            return hex_of(diff_id)
        case TarPiece(blob=blob):
            return f"tar-{hex_of(blob.digest)}" if blob.digest else None
        case ZipPiece(blob=blob):
            return f"zip-{hex_of(blob.digest)}" if blob.digest else None
        case WheelPiece(blob=blob, python=python):
            return f"whl-{hex_of(blob.digest)}-{site_packages(python).split('/')[1]}" if blob.digest else None
        case FilePiece(blob=blob, path=path) | MemberPiece(blob=blob, path=path):
            named = hashlib.sha256(path.encode()).hexdigest()[:16]
            return f"file-{hex_of(blob.digest)}-{named}" if blob.digest else None
        case TreePiece(digest=digest):
            return f"tree-{hex_of(digest)}"
        case _:
            assert_never(piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filler:
    """The state that the layers of one artifact share while they are unpacked."""

    blobs: BlobStore
    budget: UnpackBudget
    cancel: CancelToken
    meter: ProgressMeter

    def fill(self, piece: Piece, root: int) -> LayerIndex:
        """Writes the piece below `root`. Raises unless its bytes match their digest."""
        tree = TreeWriter(root, self.budget, self.cancel)
        try:
            match piece:
                case TarPiece():
                    packed = self._tar(piece, tree)
                case ZipPiece(blob=blob):
                    path = self.blobs.path(self.blobs.fetch(blob, self.cancel, self.meter))
                    packed = path.stat().st_size
                    unpack_zip(path, tree, self.budget, self.cancel, place=None)
                case WheelPiece(blob=blob, python=python):
                    path = self.blobs.path(self.blobs.fetch(blob, self.cancel, self.meter))
                    packed = path.stat().st_size
                    unpack_zip(path, tree, self.budget, self.cancel, place=partial(wheel_path, version=python))
                case FilePiece(blob=blob, path=name):
                    path = self.blobs.path(self.blobs.fetch(blob, self.cancel, self.meter))
                    packed = path.stat().st_size
                    self._file(path, name, tree)
                case MemberPiece(blob=blob, path=name):
                    path = self.blobs.path(self.blobs.fetch(blob, self.cancel, self.meter))
                    packed = path.stat().st_size
                    self._member(path, name, tree)
                case TreePiece(path=path, digest=digest, size=packed):
                    if copy_tree(path, tree, self.cancel, self.meter, self.budget.limits.depth) != digest:
                        raise DigestMismatch(f"{path} changed while it was copied; the copy was discarded.")
                case _:
                    assert_never(piece)
            return LayerIndex(entries=tree.finish(), packed_bytes=packed, unpacked_bytes=tree.bytes_written)
        except DigestMismatch:
            self.budget.give_back(tree.bytes_taken, tree.members_taken)
            raise
        finally:
            tree.close()

    def _member(self, path: Path, name: str, tree: TreeWriter) -> None:
        member = read_member(path, name, self.budget, self.cancel)
        parts = member_parts(os.fsencode(name), depth=self.budget.limits.depth)
        tree.file(parts[-1:], size=0, executable=False, mtime_s=0.0, pieces=(memoryview(chunk) for chunk in member))

    def _file(self, path: Path, name: str, tree: TreeWriter) -> None:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            tree.file(
                member_parts(os.fsencode(name), depth=self.budget.limits.depth),
                size=status.st_size,
                executable=False,
                mtime_s=status.st_mtime,
                pieces=(memoryview(chunk) for chunk in iter(lambda: file.read(1 << 20), b"")),
            )

    def _tar(self, piece: TarPiece, tree: TreeWriter) -> int:
        guard = RatioGuard(self.budget)
        try:
            found = self._untar(piece, tree, guard)
        except (UnsafeArchive, UnpackedTooLarge):
            # Bytes damaged on the way look like a damaged archive, and forged ones may be a bomb. Only a blob that was
            # verified may be blamed; otherwise it is fetched whole, and the next try unpacks what is known to be right.
            if piece.blob.digest is not None and self.blobs.find(piece.blob.digest):
                raise
            self.blobs.fetch(piece.blob, self.cancel, self.meter)
            raise DigestMismatch(f"{piece.blob.name} was damaged; it has been fetched again.") from None
        if piece.diff_id is not None and found != piece.diff_id:
            raise UnsafeArchive(f"{piece.blob.name} unpacks to {found}, but its config states {piece.diff_id}.")
        return guard.packed

    def _untar(self, piece: TarPiece, tree: TreeWriter, guard: RatioGuard) -> Digest:
        running = hashlib.sha256()

        def counted() -> Iterator[bytes]:
            for chunk in self.blobs.stream(piece.blob, self.cancel, self.meter):
                guard.packed += len(chunk)
                yield chunk

        def unpacked(packed: Iterator[bytes]) -> Iterator[bytes]:
            head = next(packed, b"")
            for out in inflate(chain([head], packed), classify_compression(head)):
                self.cancel.check()
                guard.unpacked += len(out)
                guard.check()
                running.update(out)
                yield out

        # An image's layer is hashed as a whole; a plain archive gains nothing from it, and the cost is small.
        with (
            closing(run_ahead(counted(), depth=CHUNKS_AHEAD, cancel=self.cancel, name="fetch")) as packed,
            closing(run_ahead(unpacked(packed), depth=OUTPUTS_AHEAD, cancel=self.cancel, name="inflate")) as outputs,
        ):
            unpack_tar(outputs, tree, depth=self.budget.limits.depth, whiteouts=piece.whiteouts)
        return Digest(f"sha256:{running.hexdigest()}")
