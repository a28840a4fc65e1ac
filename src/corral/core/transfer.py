"""Progress of a download or install, as one value from the worker to the API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """A new field needs an entry here, in whatever measures it and in whatever shows it. None means unknown."""

    phase: str = ""
    """`resolving`, `downloading`, `verifying`, `extracting`, `starting`, `ready`, `failed` or a frontend's step."""
    file_name: str = ""
    percentage: float = 0.0
    bytes_done: int | None = None
    bytes_total: int | None = None
    rate_bytes_per_s: float | None = None
    eta_s: float | None = None
    file_index: int | None = None
    """The file in transfer, counted from 1; layers of an image are not counted."""
    total_files: int | None = None
