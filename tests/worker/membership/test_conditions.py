"""What a worker finds wrong with its own machine, on real directories and ports."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.core.errors import Unavailable
from corral.core.nodes.conditions import Condition, ConditionKind
from corral.core.processes.ports import NoPortLeft, PortPool
from corral.system import SystemClock, SystemDisk
from corral.worker.membership.conditions import Conditions
from corral.worker.membership.identity import IDENTITY_FILE
from corral.worker.processes.ports import Ports
from harness.ports import take_ports


def no_trouble_with_ports() -> NoPortLeft | None:
    return None


def make(data_dir: Path, *, headroom: int = 1) -> Conditions:
    (data_dir / IDENTITY_FILE).write_text("{}")
    return Conditions(
        data_dir, disk=SystemDisk(), clock=SystemClock(), headroom_bytes=headroom, ports_left=no_trouble_with_ports
    )


async def only(conditions: Conditions) -> Condition:
    (found,) = await conditions.read()
    assert found.remedy
    return found


async def test_a_machine_with_all_it_needs_has_no_condition(tmp_path: Path) -> None:
    assert await make(tmp_path).read() == []


async def test_a_disk_with_less_than_its_headroom_is_reported_with_figures(tmp_path: Path) -> None:
    found = await only(make(tmp_path, headroom=1 << 60))
    assert found.kind == ConditionKind.DISK_PRESSURE
    assert "free, less than the" in found.reason


async def test_a_data_directory_that_is_removed_is_noticed_and_not_made_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    conditions = make(data)
    assert await conditions.read() == []
    shutil.rmtree(data)
    found = await only(conditions)
    assert (found.kind, "was removed" in found.reason) == (ConditionKind.DATA_DIRECTORY, True)
    assert not data.exists()


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "data"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "corral-test", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.processes
async def test_a_data_directory_that_cannot_be_written_is_noticed_and_so_is_its_recovery(own_disk: Path) -> None:
    conditions = make(own_disk)
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,ro", str(own_disk)], check=True)
    found = await only(conditions)
    assert (found.kind, "Read-only" in found.reason) == (ConditionKind.DATA_DIRECTORY, True)
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,rw", str(own_disk)], check=True)
    assert await conditions.read() == []


async def test_a_range_of_ports_that_is_used_up_is_reported_until_one_is_free(tmp_path: Path) -> None:
    first = take_ports(3)
    clock = SystemClock()
    ports = Ports(PortPool(range(first, first + 3), quarantine_s=0.0), clock)
    assert ports.find_exhausted() is None
    taken = [ports.take(key) for key in ("a", "b")]
    with socket.create_server(("127.0.0.1", first + 2)):
        with pytest.raises(Unavailable):
            ports.take("c")
        (tmp_path / IDENTITY_FILE).write_text("{}")
        conditions = Conditions(
            tmp_path, disk=SystemDisk(), clock=clock, headroom_bytes=1, ports_left=ports.find_exhausted
        )
        found = await only(conditions)
        assert found.kind == ConditionKind.PORTS_EXHAUSTED
        assert "2 in use" in found.reason
        assert "1 held by other programs" in found.reason
    ports.release(taken[0], "a")
    assert await conditions.read() == []
