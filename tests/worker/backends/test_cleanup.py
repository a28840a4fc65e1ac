"""What a worker gives back of its disk by itself."""

from types import SimpleNamespace
from typing import Any, cast

from corral.artifacts.install.gc import Freed
from corral.worker.backends.cleanup import clean_up

DAY_S = 24 * 3600


class Artifacts:
    def __init__(self) -> None:
        self.spared_s: list[float] = []
        self.swept = 0

    async def collect_garbage(self, *, in_use: object, spare_s: float) -> Freed:
        self.spared_s.append(spare_s)
        return Freed(versions=(), layers=0, blobs=0, bytes=0)

    async def sweep_partials(self) -> int:
        self.swept += 1
        return 0


async def test_what_a_cancelled_install_brought_stays_for_a_day_at_least() -> None:
    artifacts = Artifacts()
    nothing = cast("Any", SimpleNamespace(list=list))
    await clean_up(cast("Any", artifacts), nothing, nothing)
    assert artifacts.spared_s[0] >= DAY_S
    assert artifacts.swept == 1
