"""Who a machine is, on a disk that fails."""

import errno
from pathlib import Path

import pytest

from corral.core.errors import InvalidSetting, Unavailable
from corral.system import SystemDisk, SystemIds
from corral.worker.backends.applied_generations import AppliedGenerations
from corral.worker.membership.identity import Identity, read_identity, settle_identity


class FullDisk(SystemDisk):
    def write(self, path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))


def _settle(directory: Path, identity: Identity, *, join: str | None, disk: SystemDisk) -> Identity:
    return settle_identity(directory, identity, join=join, name=None, token=None, host_name="box", disk=disk)


def test_an_identity_is_made_once_and_remembers_where_it_belongs(tmp_path: Path) -> None:
    disk, ids = SystemDisk(), SystemIds()
    first = read_identity(tmp_path, ids=ids, disk=disk)
    settled = _settle(tmp_path, first, join="http://f:8080", disk=disk)
    again = read_identity(tmp_path, ids=ids, disk=disk)
    assert again == settled
    assert again.node_key == first.node_key
    assert (again.join, again.name) == ("http://f:8080", "box")


def test_without_an_address_the_command_that_gives_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="join-command"):
        _settle(tmp_path, Identity("key"), join=None, disk=SystemDisk())


def test_a_damaged_identity_is_reported_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(Unavailable, match="damaged"):
        read_identity(tmp_path, ids=SystemIds(), disk=SystemDisk())
    assert (tmp_path / "identity.json").read_text() == "{"


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No space left"):
        read_identity(tmp_path, ids=SystemIds(), disk=FullDisk())


async def test_an_order_that_cannot_be_noted_is_not_carried_out(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No space left"):
        await AppliedGenerations(tmp_path / "applied_generations.json", FullDisk()).accept("llama", 3)
