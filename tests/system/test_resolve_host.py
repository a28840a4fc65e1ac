"""Names that lead where a machine may not be."""

import asyncio
import sys

import pytest

from corral.core.errors import Unavailable
from corral.system.resolve_host import check_reach, is_own_address, seen_from_here
from harness.namespaces import TwoMachines


async def test_a_name_that_leads_to_this_machine_is_for_who_is_here() -> None:
    await check_reach("localhost:80", source_address="127.0.0.1", what="files")
    await check_reach("192.0.2.1:80", source_address="192.0.2.7", what="files")
    with pytest.raises(Unavailable, match="cannot have"):
        await check_reach("localhost:80", source_address="192.0.2.7", what="files")
    with pytest.raises(Unavailable, match="look"):
        await check_reach("no-such-host.invalid:80", source_address="192.0.2.7", what="files")


def test_own_addresses_are_known() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.7")
    assert not is_own_address("a name")
    assert seen_from_here("192.0.2.7") == "192.0.2.7"
    assert seen_from_here(None) is None


def test_who_may_bind_to_any_address_still_has_its_own_only() -> None:
    """Hosts of load balancers set ip_nonlocal_bind; every caller counted as local there."""
    machines = TwoMachines()
    try:
        machines.run("first", "sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")
        questions = [*machines.addresses.values(), "127.0.0.9", "192.0.2.7"]
        ask = f"from corral.system.resolve_host import is_own_address as own; print([own(one) for one in {questions}])"
        assert machines.run("first", sys.executable, "-c", ask).strip() == "[True, False, True, False]"
    finally:
        machines.remove()


async def test_a_name_that_is_not_looked_up_in_time_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    with pytest.raises(Unavailable, match="look"):
        await check_reach("slow.example:80", source_address="192.0.2.7", what="files", within_s=0.01)
