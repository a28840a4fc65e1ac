"""Names that lead where a machine may not be."""

import pytest

from corral.core.errors import Unavailable
from corral.system.reach import check_reach, is_own_address, seen_from_here


async def test_a_name_that_leads_to_this_machine_is_for_who_is_here() -> None:
    await check_reach("localhost:80", told_from="127.0.0.1", what="files")
    await check_reach("192.0.2.1:80", told_from="192.0.2.7", what="files")
    with pytest.raises(Unavailable, match="cannot be"):
        await check_reach("localhost:80", told_from="192.0.2.7", what="files")
    with pytest.raises(Unavailable, match="looked up"):
        await check_reach("no-such-host.invalid:80", told_from="192.0.2.7", what="files")


def test_own_addresses_are_known() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.7")
    assert not is_own_address("a name")
    assert seen_from_here("192.0.2.7") == "192.0.2.7"
    assert seen_from_here(None) is None
