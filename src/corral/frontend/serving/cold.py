"""From the loads of the cluster to what a waiting request is told."""

from typing import Protocol

from corral.core.load_jobs import LoadProgress, retry_after_s
from corral.frontend.serving.loads import LoadFailed, LoadStatus, ModelLoading


class Settled(Protocol):
    @property
    def cause(self) -> str | None:
        """Of a failure; None when there is a replica to send requests to."""
        ...

    @property
    def progress(self) -> LoadProgress | None:
        """Of a load that goes on; None when it is over."""
        ...


class Desk(Protocol):
    async def ask(self, model: str, *, within_s: float) -> Settled: ...


class ColdLoads:
    """Loads, for the lane."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ensure(self, model: str, *, within_s: float) -> None:
        settled = await self._desk.ask(model, within_s=within_s)
        if settled.progress is not None:
            raise ModelLoading(
                f"{model} is being loaded: {describe(settled.progress)}",
                loading=load_status(settled.progress),
                retry_after_s=retry_after_s(settled.progress, waited_s=within_s),
            )
        if settled.cause is not None:
            raise LoadFailed(f"{model} could not be loaded: {settled.cause}")


def load_status(progress: LoadProgress) -> LoadStatus:
    return LoadStatus(
        model=progress.model,
        state=progress.state.value,
        progress=round(progress.percent, 1),
        node=progress.node,
        bytes_sent=progress.bytes_sent,
        total_bytes=progress.total_bytes,
        file_index=progress.file_index,
        total_files=progress.total_files,
        eta_seconds=round(progress.eta_s) if progress.eta_s is not None else None,
    )


def describe(progress: LoadProgress) -> str:
    where = f" on {progress.node}" if progress.node else ""
    waits = f" ({progress.reason})" if progress.reason else ""
    share = f", {progress.percent:.0f} %" if progress.total_bytes else ""
    return f"{progress.state.value}{where}{share}{waits}"
