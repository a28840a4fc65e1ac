"""Loading a model that no replica serves yet: what the gateway asks of the cluster, and what clients are answered."""

from typing import Protocol

from corral.core.errors import Unavailable
from corral.core.replicas.load_jobs import LoadProgress, LoadState, retry_after_s


class ModelLoading(Unavailable):
    """The load is in progress and continues without the request."""

    code = "model_loading"

    def __init__(self, message: str, *, loading: LoadProgress, retry_after_s: float) -> None:
        super().__init__(message)
        self.loading = loading
        self.retry_after_s = min(300.0, max(5.0, retry_after_s))


class LoadFailed(Unavailable):
    """The load ended without a replica. The message is the cause."""

    code = "model_load_failed"


class CannotLoad(LoadFailed):
    """No load can succeed until the fleet or the model changes, so waiting or repeating the request does not help."""

    code = "model_cannot_load"
    retryable = False


class Loads(Protocol):
    async def ensure(self, model: str, *, within_s: float) -> None:
        """Returns when at least one replica of `model` can be routed to.

        Raises ModelLoading when that takes longer than `within_s`, LoadFailed with the cause, and at once CannotLoad
        where no wait helps. Cancelling the call does not stop the load: others may wait for it."""
        ...

    def describe(self, model: str) -> str:
        """The progress of the load that requests wait for, as a clause; empty if it is not known."""
        ...


class LoadResult(Protocol):
    @property
    def cause(self) -> str | None:
        """Why the load failed; None when there is a replica to send requests to."""
        ...

    @property
    def is_lasting(self) -> bool:
        """Whether another request would fail for the same cause."""
        ...

    @property
    def progress(self) -> LoadProgress | None:
        """The progress of a load that is still running; None when it is over."""
        ...


class LoadService(Protocol):
    """The cluster's loads. The gateway does not import the controller that runs them."""

    async def load(self, model: str, *, within_s: float) -> LoadResult: ...

    def progress(self, model: str) -> LoadProgress | None:
        """Of the load that requests wait for here, without a look into the store."""
        ...


class OnDemandLoads:
    """Turns the result of a load into the error that a waiting request is answered with."""

    def __init__(self, service: LoadService) -> None:
        self._service = service

    async def ensure(self, model: str, *, within_s: float) -> None:
        result = await self._service.load(model, within_s=within_s)
        if result.progress is not None:
            raise ModelLoading(
                f"{model} is being loaded: {describe(result.progress)}",
                loading=result.progress,
                retry_after_s=retry_after_s(result.progress, waited_s=within_s),
            )
        if result.cause is not None:
            if result.is_lasting:
                raise CannotLoad(f"{model} cannot be loaded: {result.cause}")
            raise LoadFailed(f"{model} could not be loaded: {result.cause}")

    def describe(self, model: str) -> str:
        progress = self._service.progress(model)
        return describe(progress) if progress is not None else ""


def describe(progress: LoadProgress) -> str:
    where = f" on {progress.node}" if progress.node else ""
    reason = f" ({progress.reason})" if progress.reason else ""
    share = f", {progress.percent:.0f} %" if progress.total_bytes else ""
    return f"{progress.state.value}{where}{_current_file(progress)}{share}{reason}"


def _current_file(progress: LoadProgress) -> str:
    if progress.state is not LoadState.STAGING or progress.total_files < 2 or not progress.file_index:
        return ""
    return f", file {progress.file_index} of {progress.total_files}"
