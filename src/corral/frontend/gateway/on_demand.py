"""From the loads of the cluster to what a waiting request is told."""

from typing import Protocol

from corral.core.replicas.load_jobs import LoadProgress, LoadState, retry_after_s
from corral.frontend.gateway.loads import LoadFailed, ModelLoading


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


class OnDemandLoads:
    """Loads, for the lane."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ensure(self, model: str, *, within_s: float) -> None:
        settled = await self._desk.ask(model, within_s=within_s)
        if settled.progress is not None:
            raise ModelLoading(
                f"{model} is being loaded: {describe(settled.progress)}",
                loading=settled.progress,
                retry_after_s=retry_after_s(settled.progress, waited_s=within_s),
            )
        if settled.cause is not None:
            raise LoadFailed(f"{model} could not be loaded: {settled.cause}")


def describe(progress: LoadProgress) -> str:
    where = f" on {progress.node}" if progress.node else ""
    waits = f" ({progress.reason})" if progress.reason else ""
    share = f", {progress.percent:.0f} %" if progress.total_bytes else ""
    return f"{progress.state.value}{where}{_which_file(progress)}{share}{waits}"


def _which_file(progress: LoadProgress) -> str:
    if progress.state is not LoadState.STAGING or progress.total_files < 2 or not progress.file_index:
        return ""
    return f", file {progress.file_index} of {progress.total_files}"
