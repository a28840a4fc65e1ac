"""Process leases in the answers to heartbeats, cached from the store."""

from collections.abc import Mapping

import pytest

from corral.bus.node_api import ProcessGrant
from corral.core.errors import Unavailable
from corral.core.processes.leases import NodeShare
from corral.frontend.nodes.process_leases import KNOWN_FOR_S, LeaseGrants


class Store:
    def __init__(self) -> None:
        self.version = 7
        self.shares = {"n": NodeShare(wanted=frozenset({"a#0"}), lost={"b#0": 3})}
        self.away = False
        self.reads = 0

    async def read_version(self) -> int:
        if self.away:
            raise Unavailable("the store is not reachable")
        return self.version

    async def read_shares(self) -> tuple[int, Mapping[str, NodeShare]]:
        self.reads += 1
        return self.version, self.shares


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def since_boot_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


async def test_a_frontend_says_nothing_until_it_knows_and_the_whole_truth_then() -> None:
    store = Store()
    leases = LeaseGrants(store, lease_s=60.0, clock=Clock())
    assert leases.find("n") is None
    await leases.refresh()
    assert leases.find("n") == ProcessGrant(leases_s={"a#0": 60.0}, revoked={"b#0": 3})
    assert leases.find("another") == ProcessGrant(), "an empty table, which ends leases of before"


async def test_memory_follows_the_version_and_reads_nothing_twice() -> None:
    store = Store()
    leases = LeaseGrants(store, lease_s=60.0, clock=Clock())
    await leases.refresh()
    await leases.refresh()
    assert store.reads == 1
    store.version, store.shares = 8, {}
    await leases.refresh()
    assert leases.find("n") == ProcessGrant()


async def test_who_cannot_reach_the_store_for_long_does_not_know_any_more() -> None:
    store, clock = Store(), Clock()
    leases = LeaseGrants(store, lease_s=60.0, clock=clock)
    await leases.refresh()
    store.away = True
    clock.now_s += KNOWN_FOR_S - 1
    with pytest.raises(Unavailable):
        await leases.refresh()
    assert leases.find("n") is not None
    clock.now_s += 2
    assert leases.find("n") is None
