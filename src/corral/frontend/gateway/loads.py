"""Asking for a model that no replica serves yet."""

from typing import Protocol

from corral.core.errors import Unavailable
from corral.core.replicas.load_jobs import LoadProgress


class ModelLoading(Unavailable):
    """Not yet; it goes on by itself."""

    code = "model_loading"

    def __init__(self, message: str, *, loading: LoadProgress, retry_after_s: float) -> None:
        super().__init__(message)
        self.loading = loading
        self.retry_after_s = min(300.0, max(5.0, retry_after_s))


class LoadFailed(Unavailable):
    """The load ended without a replica; the text is the real cause."""

    code = "model_load_failed"


class Loads(Protocol):
    async def ensure(self, model: str, *, within_s: float) -> None:
        """Returns when at least one replica of `model` can be routed to.

        Raises ModelLoading when that takes longer than `within_s`, and LoadFailed with the cause. A caller that is
        cancelled stops nothing: others may wait for the same load."""
        ...


class NoLoads:
    """For a frontend that cannot load: what is cold stays cold, and says so."""

    async def ensure(self, model: str, *, within_s: float) -> None:
        raise LoadFailed(
            f"no machine serves {model!r} now, and this frontend cannot load it."
            " Look at `corral nodes list` for machines that are healthy and approved."
        )
