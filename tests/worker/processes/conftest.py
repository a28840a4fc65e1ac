"""Real children under a real supervisor. The fixtures leave nothing behind, whatever the test did."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from corral.worker.processes.cgroups import Groups, find_groups
from harness.supervisor_bench import GROUPS, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield from _bench(tmp_path, find_groups())


@pytest.fixture(params=list(GROUPS))
def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """The same test with control groups of either version and without any."""
    groups = GROUPS[request.param]()
    if groups is None and request.param != "none":
        pytest.skip(f"no control groups {request.param} here")
    yield from _bench(tmp_path, groups)


def _bench(tmp_path: Path, groups: Groups | None) -> Iterator[Bench]:
    bench = Bench(state=tmp_path / "state", groups=groups)
    yield bench
    left = bench.left_over()
    for pid in left:
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()
    assert not left, f"processes {left} were left behind"
