"""What is begun and not finished: who removes it, and when."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.layers import LayerIndex, LayerStore
from corral.artifacts.disk.staging import Staging
from corral.artifacts.errors import Cancelled
from corral.system import SystemIds

KEY = "a" * 64


class SlowStaging:
    """Removals behind somebody's back wait here until they are let go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staging = Staging(root, SystemIds())
        self._free = threading.Event()
        self.staging._remover.submit(self._free.wait)

    def staged(self) -> list[str]:
        return [path.name for corner in self.root.iterdir() for path in corner.iterdir() if path.name != ".lock"]

    def let_go(self) -> None:
        self._free.set()
        self.staging.close()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowStaging]:
    slow = SlowStaging(tmp_path / "staging")
    yield slow
    slow.let_go()


def unpack_until(cancelled: CancelToken) -> LayerIndex:
    cancelled.check()
    raise AssertionError("the token was cancelled before")


def test_what_a_failed_sibling_stopped_is_gone_when_the_failure_is_told(slow: SlowStaging, tmp_path: Path) -> None:
    layers = LayerStore(tmp_path / "layers", slow.staging)
    token = CancelToken(parent=CancelToken())

    def fill(_root: int) -> LayerIndex:
        token.cancel("another part of the artifact failed", keep_partials=True)
        return unpack_until(token)

    with pytest.raises(Cancelled):
        layers.ensure(KEY, fill, token)
    assert slow.staged() == []


def test_who_cancels_does_not_wait_until_all_files_are_removed(slow: SlowStaging, tmp_path: Path) -> None:
    layers = LayerStore(tmp_path / "layers", slow.staging)
    operation = CancelToken()
    token = CancelToken(parent=operation)

    def fill(_root: int) -> LayerIndex:
        operation.cancel()
        return unpack_until(token)

    with pytest.raises(Cancelled):
        layers.ensure(KEY, fill, token)
    assert len(slow.staged()) == 1
    assert layers.find(KEY) is None
