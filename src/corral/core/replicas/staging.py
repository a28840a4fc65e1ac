"""The progress of a model's files to a node, over all the ways they take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTransfer:
    """Files that are transferred together, as the sender or the downloader counts them."""

    file_index: int = 0
    """Of the file in transfer, from 1; that of the last file when all have arrived."""
    file_name: str = ""
    files: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    hop: int = 1
    hops: int = 1
    """Files that go through shared storage are transferred twice; after the first leg they are half done."""


def combine(before: FileTransfer, now: FileTransfer) -> FileTransfer:
    """One transfer of both: `before` has arrived, `now` is in progress."""
    moved = now.bytes_total * (now.hop - 1) + min(now.bytes_done, now.bytes_total)
    return FileTransfer(
        file_index=before.files + now.file_index,
        file_name=now.file_name,
        files=before.files + now.files,
        bytes_done=before.bytes_total + moved // now.hops,
        bytes_total=before.bytes_total + now.bytes_total,
    )


PUBLISH_EVERY_S = 1.0


def should_publish(published: FileTransfer | None, now: FileTransfer, *, since_s: float) -> bool:
    """Another file is published at once, bytes once a second."""
    if published is None or now.file_index != published.file_index:
        return True
    return now != published and since_s >= PUBLISH_EVERY_S
