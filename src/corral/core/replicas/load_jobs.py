"""The states of a load, how long each may go without activity, and when it is retried."""

from dataclasses import dataclass
from enum import StrEnum

from corral.core.backoff import Backoff

GIB = 1 << 30


class LoadState(StrEnum):
    """LocalAI's words. A successful load removes its job."""

    PENDING = "pending"
    INSTALLING = "installing"
    STAGING = "staging"
    LOADING = "loading"
    FAILED = "failed"


ACTIVE = (LoadState.PENDING, LoadState.STAGING, LoadState.INSTALLING, LoadState.LOADING)
"""In the order of a load."""
LEASE_S = 12.0
RENEW_S = 3.0
ABSOLUTE_S = 24 * 3600.0
STAGING_STALL_S = 300.0
INSTALL_STALL_S = 300.0
LOAD_BASE_S = 300.0
LOAD_S_PER_GIB = 20.0
LOAD_CAP_S = 6 * 3600.0
LOAD_RETRIES = Backoff(base_s=5.0, cap_s=300.0, jitter=0.5)
"""Never at once, so that a model that cannot load costs little."""
RETRY_AFTER_S = (5, 300)


def load_stall_s(weights_bytes: int | None) -> float:
    """Reading weights reports no progress, so the window grows with their size."""
    if weights_bytes is None:
        return LOAD_BASE_S
    return min(LOAD_CAP_S, LOAD_BASE_S + LOAD_S_PER_GIB * weights_bytes / GIB)


def stall_window_s(state: LoadState, weights_bytes: int | None) -> float:
    """How long a step may go without activity. Any activity (bytes, hashing, unpacking) restarts the window."""
    match state:
        case LoadState.STAGING:
            return STAGING_STALL_S
        case LoadState.INSTALLING:
            # One request installs and starts, and the message that the start has begun may be lost.
            return max(INSTALL_STALL_S, load_stall_s(weights_bytes))
        case _:
            return load_stall_s(weights_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """The progress of a load, for waiting requests and the load status."""

    model: str
    state: LoadState
    node: str = ""
    bytes_sent: int = 0
    total_bytes: int = 0
    file_index: int = 0
    total_files: int = 0
    eta_s: float | None = None
    reason: str = ""
    error: str = ""

    @property
    def percent(self) -> float:
        if not self.total_bytes:
            return 0.0
        return min(100.0, 100.0 * self.bytes_sent / self.total_bytes)


def loading_object(progress: LoadProgress) -> dict[str, object]:
    """LocalAI's fields, and Corral's `reason`: what the load waits for."""
    shown: dict[str, object] = {"model": progress.model, "state": progress.state.value}
    if progress.node:
        shown["node"] = progress.node
    shown |= {
        "progress": round(progress.percent, 1),
        "bytes_sent": progress.bytes_sent,
        "total_bytes": progress.total_bytes,
        "file_index": progress.file_index,
        "total_files": progress.total_files,
    }
    if progress.eta_s is not None:
        shown["eta_seconds"] = round(progress.eta_s)
    if progress.reason:
        shown["reason"] = progress.reason
    if progress.error:
        shown["error"] = progress.error
    return shown


def retry_after_s(progress: LoadProgress, *, waited_s: float) -> int:
    low, high = RETRY_AFTER_S
    return int(min(high, max(low, progress.eta_s if progress.eta_s is not None else waited_s)))
