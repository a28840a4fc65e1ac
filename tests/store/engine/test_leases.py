"""At most one holder, by the store's clock; a late one cannot write."""

import asyncio

import pytest

from corral.core.errors import Fenced
from corral.store.engine.database import Tx
from corral.store.engine.leases import Lease, check_fence
from corral.store.stores import Stores
from corral.system import SystemClock
from harness.databases import Rig


async def check(stores: Stores, lease: Lease) -> None:
    async def body(tx: Tx) -> None:
        await check_fence(tx, lease)

    await stores.database.write(body)


async def test_the_first_who_asks_holds_and_the_second_does_not(stores: Stores) -> None:
    assert await stores.leases.hold("health", "one", ttl_s=15) == Lease("health", "one", 1)
    assert await stores.leases.hold("health", "two", ttl_s=15) is None
    assert await stores.leases.hold("other", "two", ttl_s=15) == Lease("other", "two", 1)


async def test_of_many_who_ask_at_once_one_holds(stores: Stores) -> None:
    asked = await asyncio.gather(*(stores.leases.hold("health", f"fe{number}", ttl_s=15) for number in range(10)))
    assert sum(lease is not None for lease in asked) == 1


async def test_keeping_a_lease_moves_its_end_and_not_its_fence(stores: Stores, rig: Rig) -> None:
    first = await stores.leases.hold("health", "one", ttl_s=15)
    for _ in range(3):
        await rig.advance(10)
        assert await stores.leases.hold("health", "one", ttl_s=15) == first
    assert first is not None
    await check(stores, first)


async def test_the_fence_grows_with_every_change_of_hands(stores: Stores, rig: Rig) -> None:
    fences = []
    for holder in ("one", "two", "one", "three"):
        lease = await stores.leases.hold("health", holder, ttl_s=15)
        assert lease is not None
        fences.append(lease.fence)
        await rig.advance(15)
    assert fences == [1, 2, 3, 4]


async def test_a_lease_is_held_to_its_last_millisecond_and_not_beyond(stores: Stores, rig: Rig) -> None:
    lease = await stores.leases.hold("health", "one", ttl_s=15)
    assert lease is not None
    await rig.advance(14.999)
    assert await stores.leases.hold("health", "two", ttl_s=15) is None
    await check(stores, lease)
    await rig.advance(0.001)
    with pytest.raises(Fenced):
        await check(stores, lease)
    assert await stores.leases.hold("health", "two", ttl_s=15) == Lease("health", "two", 2)


async def test_a_holder_that_was_replaced_cannot_write_even_if_it_takes_over_again(stores: Stores, rig: Rig) -> None:
    old = await stores.leases.hold("health", "one", ttl_s=15)
    await rig.advance(15)
    await stores.leases.hold("health", "two", ttl_s=15)
    await rig.advance(15)
    new = await stores.leases.hold("health", "one", ttl_s=15)
    assert old is not None
    assert new is not None
    with pytest.raises(Fenced):
        await check(stores, old)
    await check(stores, new)


async def test_a_fresh_process_voids_what_an_earlier_one_under_its_name_still_does(stores: Stores) -> None:
    earlier = await stores.leases.hold("health", "one", ttl_s=15)
    fresh = await stores.leases.hold("health", "one", ttl_s=15, fresh=True)
    assert earlier is not None
    assert fresh == Lease("health", "one", earlier.fence + 1)
    with pytest.raises(Fenced):
        await check(stores, earlier)


async def test_being_fresh_takes_nothing_from_another_holder(stores: Stores) -> None:
    await stores.leases.hold("health", "one", ttl_s=15)
    assert await stores.leases.hold("health", "two", ttl_s=15, fresh=True) is None


async def test_a_released_lease_is_free_at_once(stores: Stores) -> None:
    lease = await stores.leases.hold("health", "one", ttl_s=15)
    assert lease is not None
    await stores.leases.release(lease)
    with pytest.raises(Fenced):
        await check(stores, lease)
    assert await stores.leases.hold("health", "two", ttl_s=15) == Lease("health", "two", 2)


async def test_releasing_late_takes_nothing_from_the_next_holder(stores: Stores, rig: Rig) -> None:
    late = await stores.leases.hold("health", "one", ttl_s=15)
    await rig.advance(15)
    current = await stores.leases.hold("health", "two", ttl_s=15)
    assert late is not None
    assert current is not None
    await stores.leases.release(late)
    await check(stores, current)


async def test_a_refused_fence_writes_nothing(stores: Stores, rig: Rig) -> None:
    lease = await stores.leases.hold("health", "one", ttl_s=15)
    await rig.advance(15)

    async def body(tx: Tx) -> None:
        await tx.execute("UPDATE leases SET holder = 'nobody'")
        assert lease is not None
        await check_fence(tx, lease)

    with pytest.raises(Fenced):
        await stores.database.write(body)
    assert rig.run_sql("SELECT holder FROM leases") == ["one"]


@pytest.mark.parametrize("offset_s", [-300, 300])
async def test_a_frontend_whose_own_clock_is_off_decides_the_same(stores: Stores, rig: Rig, offset_s: int) -> None:
    if rig.kind == "sqlite":
        pytest.skip("SQLite's store clock is the one machine's clock")

    class Off(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + offset_s * 1000

    astray = Stores(await rig.open(host_clock=Off()))
    held = await stores.leases.hold("health", "one", ttl_s=15)
    assert held is not None
    assert await astray.leases.hold("health", "astray", ttl_s=15) is None
    await rig.advance(15)
    taken = await astray.leases.hold("health", "astray", ttl_s=15)
    assert taken == Lease("health", "astray", 2)
    assert await stores.leases.hold("health", "one", ttl_s=15) is None
    await rig.advance(15)
    assert await stores.leases.hold("health", "one", ttl_s=15) == Lease("health", "one", 3)
