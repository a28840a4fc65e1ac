"""Process leases in the answers to heartbeats, cached from the store."""

from collections.abc import Mapping

import pytest

from corral.bus.node_api import GrantedLeases
from corral.core.errors import Unavailable
from corral.core.processes.leases import NodeShare
from corral.frontend.nodes.process_leases import KNOWN_FOR_S, LeaseGrants
from corral.store.serving.replicas import ReplicaStore
from harness.clocks import HeldClock


class Store(ReplicaStore):
    def __init__(self) -> None:
        self.version = 7
        self.shares = {"n": NodeShare(desired=frozenset({"a#0"}), revoked={"b#0": 3})}
        self.unreachable = False
        self.reads = 0

    async def read_version(self) -> int:
        if self.unreachable:
            raise Unavailable("the store is not reachable")
        return self.version

    async def read_shares(self) -> tuple[int, Mapping[str, NodeShare]]:
        self.reads += 1
        return self.version, self.shares


async def test_leases_are_unknown_until_the_first_refresh_and_complete_afterwards() -> None:
    store = Store()
    leases = LeaseGrants(store, lease_s=60.0, clock=HeldClock())
    assert leases.find("n") is None
    await leases.refresh()
    assert leases.find("n") == GrantedLeases(leases_s={"a#0": 60.0}, revoked={"b#0": 3})
    assert leases.find("another") == GrantedLeases(), "an empty table, which ends leases of before"


async def test_leases_are_read_again_only_when_the_version_changes() -> None:
    store = Store()
    leases = LeaseGrants(store, lease_s=60.0, clock=HeldClock())
    await leases.refresh()
    await leases.refresh()
    assert store.reads == 1
    store.version, store.shares = 8, {}
    await leases.refresh()
    assert leases.find("n") == GrantedLeases()


async def test_leases_become_unknown_when_the_store_is_unreachable_for_long() -> None:
    store, clock = Store(), HeldClock()
    leases = LeaseGrants(store, lease_s=60.0, clock=clock)
    await leases.refresh()
    store.unreachable = True
    clock.now_s += KNOWN_FOR_S - 1
    with pytest.raises(Unavailable):
        await leases.refresh()
    assert leases.find("n") is not None
    clock.now_s += 2
    assert leases.find("n") is None
