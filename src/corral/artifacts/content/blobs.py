"""The content-addressed blob store. A blob is streamed to whoever unpacks it while it is fetched, hashed and
written; it gets its final name only when its size and digest match.

    blobs/sha256/<hex>      whole and verified
    blobs/partial/<key>     a prefix of a blob; survives a kill and is continued by range
"""

import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from corral.artifacts.cancel import CancelToken
from corral.artifacts.digests import Digest, digest_of, finish, hex_of, new_hash
from corral.artifacts.disk.flush import start_writeback
from corral.artifacts.disk.locks import held, sweep_locks
from corral.artifacts.errors import (
    ArtifactError,
    Cancelled,
    DigestMismatch,
    DiskFault,
    DiskFull,
    PolicyRefused,
    SourceRejected,
    SourceUnavailable,
    disk_errors,
)
from corral.artifacts.net.client import Outbound
from corral.artifacts.progress import ProgressMeter

CHUNK_BYTES = 256 * 1024


class BlobStream(Protocol):
    """Bytes from `offset` on. A server that cannot resume starts at 0, which is not an error."""

    offset: int
    total: int | None

    def read(self, count: int) -> bytes: ...


class BlobSource(Protocol):
    """One place that a blob can be fetched from."""

    @property
    def label(self) -> str: ...

    def open(self, offset: int, cancel: CancelToken) -> AbstractContextManager[BlobStream]: ...


class TurnEnded(Exception):
    """This node asks again which node of the site fetches the blob."""


class Share(Protocol):
    """One blob of this node, while nodes of its site fetch it."""

    @property
    def leader_failed(self) -> bool:
        """Whether another node has just failed to fetch it, after all its retries."""

    def next_source(self, offset: int, cancel: CancelToken) -> BlobSource | None:
        """The node to take the blob from; None if this node has to fetch it from its own sources."""

    @property
    def is_trial(self) -> bool:
        """Whether its own sources are only tried for their speed: if they fail, another node still sends it."""

    def turn(self, cancel: CancelToken) -> CancelToken:
        """For fetching from its own sources. Raises TurnEnded once another node does that."""

    def moved(self, offset: int) -> None:
        """This node has fetched bytes from its own sources."""

    def lost(self, source: BlobSource, error: ArtifactError) -> None:
        """A node stopped sending the blob."""


class SharedBlobs(Protocol):
    def join(self, digest: Digest, size: int | None) -> AbstractContextManager[Share]:
        """Until the blob is fetched and verified, or has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob to fetch, and its sources in order of preference."""

    name: str
    """The name that progress and errors show."""
    digest: Digest | None
    """None only for an unpinned location. The digest found is then recorded."""
    size: int | None
    sources: tuple[BlobSource, ...]
    size_limit: int | None = None
    """The most that is taken of a blob whose size is not known in advance."""
    near: tuple[BlobSource, ...] = ()
    """Peers, tried before all other sources and not again after one of them sent wrong bytes."""
    site: SharedBlobs | None = None
    """The other nodes of the site, which may fetch the same blob at the same time."""
    git_oid: str = ""
    """The Git object id of a file that has no other digest. It is checked after the download."""
    resumable: bool = True
    """False for a location without digest, entity tag or date: a resumed download might mix two versions."""
    identity: str = ""
    """Replaces the digest of an unpinned blob when a partial download is resumed: address and entity tag."""

    @property
    def key(self) -> str:
        return hex_of(self.digest or digest_of((self.identity or self.name).encode()))

    @property
    def tries(self) -> int:
        """How often it is fetched while its bytes are wrong: from peers, and from each source."""
        return max(2, bool(self.near or self.site is not None) + len(self.sources) + 1)

    def elsewhere(self, error: DigestMismatch) -> "Blob":
        """The same blob, without the peers or with the next source first, whichever may have sent the wrong bytes."""
        blob = self
        if error.from_nodes:
            blob = replace(blob, near=(), site=None)
        if error.from_sources:
            blob = replace(blob, sources=self.sources[1:] + self.sources[:1])
        return blob


@dataclass(slots=True)
class _Attempt:
    """One running download: its offset and its hash so far."""

    descriptor: int
    offset: int = 0
    from_nodes: bool = False
    from_sources: bool = False
    """Where its bytes came from."""

    def mismatch(self, message: str) -> DigestMismatch:
        return DigestMismatch(message, from_nodes=self.from_nodes, from_sources=self.from_sources)


class BlobStore:
    def __init__(self, root: Path, outbound: Outbound, *, keep_free_bytes: int = 0) -> None:
        """`keep_free_bytes`: what a peer may not use when it sends a blob of unknown size."""
        self._root = root
        self._outbound = outbound
        self._keep_free_bytes = keep_free_bytes
        self._whole = root / "sha256"
        self._partial = root / "partial"
        self._locks = root / "locks"
        self._watchers: dict[str, set[Callable[[], None]]] = {}
        self._watching = threading.Lock()
        for directory in (self._whole, self._partial, self._locks):
            directory.mkdir(parents=True, exist_ok=True)

    def path(self, digest: Digest) -> Path:
        return self._whole / hex_of(digest)

    def find(self, digest: Digest) -> Path | None:
        path = self.path(digest)
        return path if path.is_file() else None

    def find_partial(self, digest: Digest) -> Path | None:
        path = self._partial / hex_of(digest)
        return path if path.is_file() else None

    def partial_path(self, blob: Blob) -> Path:
        return self._partial / blob.key

    def digests(self) -> Iterator[Digest]:
        with os.scandir(self._whole) as entries:
            for entry in entries:
                yield Digest(f"sha256:{entry.name}" if len(entry.name) == 64 else f"sha512:{entry.name}")

    def remove(self, digest: Digest) -> int:
        path = self.path(digest)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def bytes_missing(self, blob: Blob) -> int:
        """The bytes that still have to be fetched and stored, as far as the size is known."""
        if blob.size is None or (blob.digest is not None and self.find(blob.digest)):
            return 0
        partial = self.partial_path(blob)
        return max(0, blob.size - (partial.stat().st_size if partial.exists() else 0))

    def sweep(self, *, now_s: float, older_than_s: float) -> int:
        """Removes partial downloads that nobody resumed. Running ones were written to recently and stay."""
        freed = 0
        for path in sorted(self._partial.iterdir()):
            status = path.stat()
            if now_s - status.st_mtime > older_than_s:
                path.unlink(missing_ok=True)
                freed += status.st_size
        return freed

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._root).free

    def sweep_locks(self) -> None:
        sweep_locks(self._locks)

    @contextmanager
    def watching(self, digest: Digest, changed: Callable[[], None]) -> Iterator[None]:
        """Calls `changed`, in the thread of the download, when bytes of the blob arrive or its download ends."""
        key = hex_of(digest)
        with self._watching:
            self._watchers.setdefault(key, set()).add(changed)
        try:
            yield
        finally:
            with self._watching:
                self._watchers[key].discard(changed)
                if not self._watchers[key]:
                    del self._watchers[key]

    def _tell_watchers(self, blob: Blob) -> None:
        if blob.key not in self._watchers:
            return
        with self._watching:  # so that none is called after it left
            for changed in self._watchers.get(blob.key, ()):
                changed()

    def discard_partial(self, blob: Blob) -> None:
        self.partial_path(blob).unlink(missing_ok=True)

    def fetch(self, blob: Blob, cancel: CancelToken, meter: ProgressMeter) -> Digest:
        """Fetches the blob into the store without passing its bytes on."""
        for tries_left in reversed(range(blob.tries)):
            try:
                found = [digest for digest, _ in self._stream(blob, cancel, meter) if digest is not None]
                return found[-1]
            except DigestMismatch as error:
                if not tries_left:
                    raise
                blob = blob.elsewhere(error)
        raise AssertionError("unreachable: the last try returns or raises")

    def stream(self, blob: Blob, cancel: CancelToken, meter: ProgressMeter) -> Iterator[bytes]:
        """The blob's bytes in order. They are verified only when the iteration ends without an error."""
        for _, chunk in self._stream(blob, cancel, meter):
            if chunk:
                yield chunk

    def _stream(self, blob: Blob, cancel: CancelToken, meter: ProgressMeter) -> Iterator[tuple[Digest | None, bytes]]:
        with held(self._locks, blob.key, cancel):
            if blob.digest is not None and (path := self.find(blob.digest)):
                yield from self._from_disk(blob, path, cancel, meter)
            else:
                yield from self._from_sources(blob, cancel, meter)

    def _from_disk(
        self, blob: Blob, path: Path, cancel: CancelToken, meter: ProgressMeter
    ) -> Iterator[tuple[Digest | None, bytes]]:
        running, count = new_hash(blob.digest), 0
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                cancel.check()
                running.update(chunk)
                count += len(chunk)
                meter.cached(len(chunk))
                yield None, chunk
        found = finish(blob.digest, running)
        if found != blob.digest:
            path.unlink(missing_ok=True)
            meter.taken_back(count)
            raise DigestMismatch(f"The stored copy of {blob.name} is damaged (it is {found}); it has been removed.")
        yield found, b""

    def _from_sources(
        self, blob: Blob, cancel: CancelToken, meter: ProgressMeter
    ) -> Iterator[tuple[Digest | None, bytes]]:
        partial = self.partial_path(blob)
        running = new_hash(blob.digest)
        with disk_errors(f"storing {blob.name}"):
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        attempt = _Attempt(descriptor)
        try:
            for chunk in self._resumed(attempt, blob, cancel):
                running.update(chunk)
                meter.cached(len(chunk))
                yield None, chunk
            with _joined(blob) as share:
                for chunk in self._downloaded(attempt, blob, cancel, meter, share):
                    running.update(chunk)
                    yield None, chunk
                found = finish(blob.digest, running)
                if (blob.digest is not None and found != blob.digest) or blob.size not in (None, attempt.offset):
                    meter.taken_back(attempt.offset)
                    raise attempt.mismatch(_mismatch(blob, found, attempt))
                with disk_errors(f"storing {blob.name}"):
                    start_writeback(descriptor)
                    partial.replace(self.path(found))
                    os.fchmod(descriptor, 0o444)  # weights are this very file under another name
            yield found, b""
        except (DiskFull, DiskFault, DigestMismatch):
            partial.unlink(missing_ok=True)
            raise
        except Cancelled as error:
            if not error.keep_partials:
                partial.unlink(missing_ok=True)
            raise
        finally:
            if attempt.offset == 0:
                partial.unlink(missing_ok=True)
            os.close(descriptor)
            self._tell_watchers(blob)

    def _resumed(self, attempt: _Attempt, blob: Blob, cancel: CancelToken) -> Iterator[bytes]:
        """Bytes left by an earlier run. They are hashed again, because the digest covers all bytes."""
        limit = os.fstat(attempt.descriptor).st_size
        if not blob.resumable or (blob.size is not None and limit > blob.size):
            os.ftruncate(attempt.descriptor, 0)
            limit = 0
        while attempt.offset < limit:
            cancel.check()
            chunk = os.read(attempt.descriptor, min(CHUNK_BYTES, limit - attempt.offset))
            if not chunk:
                break
            attempt.offset += len(chunk)
            yield chunk

    def _downloaded(
        self, attempt: _Attempt, blob: Blob, cancel: CancelToken, meter: ProgressMeter, share: Share | None
    ) -> Iterator[bytes]:
        """Fetches the rest: from peers that have the blob, else together with the other nodes of the site, else from
        the first source that has it."""
        try:
            if blob.near:
                yield from self._from_first(blob.near, attempt, blob, cancel, meter)
                return
        except (SourceUnavailable, SourceRejected, PolicyRefused):
            if not blob.sources:
                raise
        if share is None:
            yield from self._from_first(blob.sources, attempt, blob, cancel, meter)
            return
        while blob.size is None or attempt.offset < blob.size:
            source = share.next_source(attempt.offset, cancel)
            if source is None:
                try:
                    yield from self._from_first(blob.sources, attempt, blob, share.turn(cancel), meter, share)
                    return
                except TurnEnded:
                    continue
                except (SourceUnavailable, SourceRejected, PolicyRefused):
                    if not share.is_trial:
                        raise
                    continue
            try:
                yield from self._from_one(source, attempt, blob, cancel, meter)
                return
            except (SourceUnavailable, SourceRejected, PolicyRefused) as error:
                share.lost(source, error)

    def _from_first(
        self,
        sources: Sequence[BlobSource],
        attempt: _Attempt,
        blob: Blob,
        cancel: CancelToken,
        meter: ProgressMeter,
        share: Share | None = None,
    ) -> Iterator[bytes]:
        """From the first source that has it. Progress resets the retries; a definite rejection moves to the next
        source."""
        problems: list[ArtifactError] = []
        attempts = (
            1 if share is not None and (share.leader_failed or share.is_trial) else self._outbound.limits.attempts
        )
        for source in sources:
            failures = 0
            while blob.size is None or attempt.offset < blob.size:
                before = attempt.offset
                try:
                    yield from self._from_one(source, attempt, blob, cancel, meter, share)
                    if blob.size is None or attempt.offset >= blob.size:
                        return
                    raise SourceUnavailable(f"{source.label} ended after {attempt.offset} of {blob.size} bytes.")
                except SourceUnavailable as error:
                    failures = failures + 1
                    if attempt.offset > before:
                        failures, attempts = 1, self._outbound.limits.attempts
                    stuck = attempt.offset > 0 and not blob.resumable
                    if stuck or failures >= attempts:
                        problems.append(error)
                        break
                    self._outbound.pause(failures - 1, error, cancel)
                except (SourceRejected, PolicyRefused) as error:
                    problems.append(error)
                    break
            else:
                return
        raise _all_failed(blob, problems)

    def _from_one(
        self,
        source: BlobSource,
        attempt: _Attempt,
        blob: Blob,
        cancel: CancelToken,
        meter: ProgressMeter,
        share: Share | None = None,
    ) -> Iterator[bytes]:
        is_own = any(source is one for one in blob.sources)
        with source.open(attempt.offset, cancel) as stream:
            attempt.from_sources |= is_own
            attempt.from_nodes |= not is_own
            if blob.size is not None and stream.total not in (None, blob.size):
                raise attempt.mismatch(
                    f"{source.label} reports {stream.total} bytes for {blob.name} instead of {blob.size}."
                )
            repeated = attempt.offset - stream.offset  # a server without ranges sends what we have once more
            if repeated and blob.digest is None:
                # With no digest to tell, what comes now may be another file than what we have the beginning of.
                raise attempt.mismatch(f"{source.label} cannot resume {blob.name}, or the file has changed.")
            while chunk := stream.read(CHUNK_BYTES):
                cancel.check()
                if repeated:
                    skipped = min(repeated, len(chunk))
                    repeated -= skipped
                    chunk = chunk[skipped:]
                    if not chunk:
                        continue
                most = blob.size if blob.size is not None else blob.size_limit
                if most is not None and attempt.offset + len(chunk) > most:
                    raise attempt.mismatch(f"{source.label} sent more than the {most} bytes of {blob.name}.")
                if most is None and not is_own and self._free_bytes() < self._keep_free_bytes + len(chunk):
                    raise attempt.mismatch(f"{source.label} sends more of {blob.name} than this disk has room for.")
                with disk_errors(f"storing {blob.name}"):
                    _write_all(attempt.descriptor, chunk)
                attempt.offset += len(chunk)
                self._tell_watchers(blob)
                meter.moved(len(chunk), blob.name)
                if share is not None:
                    share.moved(attempt.offset)
                yield chunk
            if stream.total is not None and attempt.offset < stream.total:
                raise SourceUnavailable(f"{source.label} ended after {attempt.offset} of {stream.total} bytes.")


@contextmanager
def _joined(blob: Blob) -> Iterator[Share | None]:
    if blob.site is None or blob.digest is None:
        yield None
        return
    with blob.site.join(blob.digest, blob.size) as share:
        yield share


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _mismatch(blob: Blob, found: Digest, attempt: _Attempt) -> str:
    if blob.size not in (None, attempt.offset):
        return f"{blob.name} has {attempt.offset} bytes instead of {blob.size}; the download was discarded."
    return f"{blob.name} has the digest {found} instead of {blob.digest}; the download was discarded."


def _all_failed(blob: Blob, problems: Sequence[ArtifactError]) -> ArtifactError:
    """The first source's error, with the errors of the other sources added."""
    if not problems:
        return SourceRejected(f"No source has {blob.name}.", status=404)
    reasons = " Then: ".join(str(problem) for problem in problems)
    retryable = [problem for problem in problems if isinstance(problem, SourceUnavailable)]
    if retryable:
        return type(retryable[0])(f"{blob.name} could not be fetched. {reasons}")
    first = problems[0]
    if isinstance(first, SourceRejected):
        return SourceRejected(f"{blob.name} could not be fetched. {reasons}", status=first.status)
    return PolicyRefused(f"{blob.name} could not be fetched. {reasons}")


@dataclass(frozen=True, slots=True)
class FileSource:
    """Bytes that are already on this machine: an OCI layout, a file, a network share."""

    path: Path

    @property
    def label(self) -> str:
        return str(self.path)

    @contextmanager
    def open(self, offset: int, cancel: CancelToken) -> Iterator[BlobStream]:
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise SourceRejected(f"{self.path} does not exist.", status=404) from error
        with file:
            total = os.fstat(file.fileno()).st_size
            file.seek(min(offset, total))
            yield _FileStream(offset=min(offset, total), total=total, file=file)


@dataclass(slots=True)
class _FileStream:
    offset: int
    total: int | None
    file: io.RawIOBase

    def read(self, count: int) -> bytes:
        return self.file.read(count) or b""


def place(source: Path, target: Path, *, token: str) -> None:
    """Gives `target` the content of `source` atomically: by hard link where the filesystem can, else by copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{token}")
    with disk_errors(f"placing {target.name}"):
        try:
            try:
                os.link(source, staged)
            except OSError:
                shutil.copyfile(source, staged)
            staged.replace(target)
        finally:
            staged.unlink(missing_ok=True)
