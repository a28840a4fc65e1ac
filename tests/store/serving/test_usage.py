"""Requests and tokens, counted once, on both databases."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from corral.core.errors import OutcomeUnknown
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.store.access.api_keys import Scope, hash_secret
from corral.store.serving.usage import RETENTION_DAYS, UsageKey, UsageRow, UsageStore, Used
from corral.store.stores import Stores
from harness.databases import Rig

A = UsageKey("key-a", "tiny", "node-1")
B = UsageKey("key-b", "tiny", "node-2")
DAY_S = 24 * 3600.0


async def test_what_several_frontends_count_adds_up(stores: Stores, rig: Rig) -> None:
    others = [Stores(await rig.open()) for _ in range(3)]

    async def write(number: int) -> None:
        for batch in range(1, 6):
            await others[number].usage.add(f"fe{number}", batch, {B: Used(1, 2, 3), A: Used(1, 10, 20)})

    await asyncio.gather(*(write(number) for number in range(3)))
    assert await stores.usage.read(days=1, by=("key_id", "model", "node_id")) == [
        UsageRow(key_id="key-a", model="tiny", node_id="node-1", used=Used(15, 150, 300)),
        UsageRow(key_id="key-b", model="tiny", node_id="node-2", used=Used(15, 30, 45)),
    ]
    assert await stores.usage.read(days=1, by=("model",)) == [UsageRow(model="tiny", used=Used(30, 180, 345))]
    assert await stores.usage.read(days=1, by=()) == [UsageRow(used=Used(30, 180, 345))]


async def test_a_batch_that_was_written_is_not_counted_again(stores: Stores) -> None:
    for batch in (1, 1, 2, 1):
        await stores.usage.add("fe", batch, {A: Used(1, 1, 1)})
    assert await stores.usage.read(days=1, by=()) == [UsageRow(used=Used(2, 2, 2))]


async def test_days_are_told_apart_and_old_ones_go(stores: Stores, rig: Rig) -> None:
    await stores.usage.add("fe", 1, {A: Used(1, 1, 1)})
    await rig.advance(DAY_S)
    await stores.usage.add("fe", 2, {A: Used(2, 2, 2)})
    assert [row.used.requests for row in await stores.usage.read(days=2, by=("day",))] == [1, 2]
    assert [row.used.requests for row in await stores.usage.read(days=1, by=("day",))] == [2]
    await rig.advance(RETENTION_DAYS * DAY_S)
    await stores.usage.prune()
    assert [row.used.requests for row in await stores.usage.read(days=RETENTION_DAYS * 2, by=("day",))] == [2]


async def test_nothing_used_is_no_row(stores: Stores) -> None:
    assert await stores.usage.read(days=30, by=()) == []


async def test_the_counter_writes_in_batches_and_what_is_left_at_the_end(stores: Stores) -> None:
    counter = UsageCounter(stores.usage, writer="run-1")
    await counter.write()
    for _ in range(100):
        counter.count(key_id="key-a", model="tiny", node_id="node-1", tokens_in=3, tokens_out=5)
    counter.count(key_id=None, model="tiny", node_id="node-1", tokens_in=0, tokens_out=0)
    await counter.finish()
    await counter.finish()
    assert await stores.usage.read(days=1, by=("key_id",)) == [
        UsageRow(key_id="", used=Used(1, 0, 0)),
        UsageRow(key_id="key-a", used=Used(100, 300, 500)),
    ]


async def test_a_batch_with_an_unknown_outcome_is_sent_again_under_its_number(stores: Stores) -> None:
    class Doubtful(UsageStore):
        """Writes, and does not tell."""

        def __init__(self) -> None:
            """Without a database of its own."""

        async def add(self, writer: str, batch: int, counts: Mapping[UsageKey, Used]) -> None:
            await stores.usage.add(writer, batch, counts)
            raise TimeoutError

    counter = UsageCounter(Doubtful(), writer="run-1")
    counter.count(key_id="k", model="m", node_id="n", tokens_in=1, tokens_out=1)
    with pytest.raises(TimeoutError):
        await counter.write()
    counter.count(key_id="k", model="m", node_id="n", tokens_in=1, tokens_out=1)
    counter._store = stores.usage
    await counter.finish()
    assert await stores.usage.read(days=1, by=()) == [UsageRow(used=Used(2, 2, 2))]


async def test_a_count_the_store_refuses_is_dropped_alone(stores: Stores) -> None:
    counter = UsageCounter(stores.usage, writer="fe")
    counter.count(key_id="k", model="a", node_id="n", tokens_in=1, tokens_out=1)
    counter.count(key_id="k", model="evil", node_id="n", tokens_in=1 << 70, tokens_out=1)
    counter.count(key_id="k", model="nul\0", node_id="n", tokens_in=1, tokens_out=1)
    counter.count(key_id="k", model="z", node_id="n", tokens_in=1, tokens_out=1)
    await counter.write()
    counter.count(key_id="k", model="a", node_id="n", tokens_in=1, tokens_out=1)
    await counter.write()
    assert await stores.usage.read(days=1, by=("model",)) == [
        UsageRow(model="a", used=Used(2, 2, 2)),
        UsageRow(model="z", used=Used(1, 1, 1)),
    ]


async def test_a_failure_between_single_counts_repeats_and_loses_none(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = UsageCounter(stores.usage, writer="fe")
    for model in ("a", "evil", "z"):
        counter.count(key_id="k", model=model, node_id="n", tokens_in=1 << 70 if model == "evil" else 1, tokens_out=1)
    add, calls = stores.usage.add, 0

    async def lose_an_answer(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        await add(*arguments)
        if calls == 2:
            raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(stores.usage, "add", lose_an_answer)
    with pytest.raises(OutcomeUnknown):
        await counter.write()
    counter.count(key_id="k", model="z", node_id="n", tokens_in=1, tokens_out=1)
    for _ in range(2):
        await counter.write()
    assert await stores.usage.read(days=1, by=("model",)) == [
        UsageRow(model="a", used=Used(1, 1, 1)),
        UsageRow(model="z", used=Used(2, 2, 2)),
    ]


async def test_a_key_remembers_the_models_it_may_use(stores: Stores) -> None:
    await stores.access.add_key(id="1", name="all", scope=Scope.USER, key="secret-1", actor="ann")
    made = await stores.access.add_key(
        id="2", name="some", scope=Scope.USER, key="secret-2", actor="ann", models=["tiny", "big", "tiny"]
    )
    assert made.models == ("tiny", "big")
    ring = await stores.access.read_active_keys()
    assert {key.name: key.models for key in ring.values()} == {"all": None, "some": ("tiny", "big")}
    assert ring[hash_secret("secret-2")] == made
    await stores.access.set_key_models("some", ["big"], actor="bob")
    changed = await stores.access.find_key(hash_secret("secret-2"))
    assert changed is not None
    assert changed.models == ("big",)
    await stores.access.set_key_models("some", None, actor="bob")
    await stores.access.revoke_key("some", actor="bob")
    assert list(await stores.access.read_active_keys()) == [hash_secret("secret-1")]
