"""Desired state beside a slow registry: each reference is asked for once, and deletes wait for nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from controller.test_resolve import DIGEST, Galleries, Registry
from corral.artifacts.digests import Digest
from corral.artifacts.pins import Pin
from corral.controller.desired import DesiredState
from corral.controller.fleet import Fleet
from corral.controller.resolve import Resolver
from corral.core.dead_letters import DEFAULT_PATIENCE
from corral.core.intents import Intent, Verb, Wish
from corral.core.nodes import Node, NodeId
from corral.core.observed import Observation, ObservedBackend
from corral.core.policies import Ensure, PolicyChange
from corral.core.targets import Target
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from harness.fleet_store import admission, healthy
from harness.waiting import wait_until_async

JOINERS = 60


class SlowRegistry(Registry):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: object = None) -> Pin:
        self.asked.append(uri)
        await self.answers.wait()
        return Pin(uri=uri, digest=DIGEST, platforms=None)


async def nothing() -> None:
    return


@asynccontextmanager
async def keeping(stores: Stores, registry: Registry) -> AsyncIterator[None]:
    ids, resolver = SystemIds(), Resolver(Galleries(), registry, stores.kept_builds)
    fleet = Fleet(
        nodes=stores.nodes,
        observed=stores.observed,
        intents=stores.intents,
        policies=stores.policies,
        admissions=stores.admission,
        resolver=resolver,
        ids=ids,
        on_change=nothing,
    )
    desired = DesiredState(
        holder="fe",
        nodes=stores.nodes,
        processes=stores.observed,
        policies=stores.policies,
        changes=stores.intents,
        fleet=fleet,
        resolver=resolver,
        holds=stores.version_holds,
        patience=DEFAULT_PATIENCE,
        admissions=stores.admission,
        leases=stores.leases,
        clock=SystemClock(),
        ids=ids,
        on_change=nothing,
    )
    running = asyncio.create_task(desired.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


def told(node: Node, *backends: ObservedBackend) -> Observation:
    return Observation(node_id=node.id, instance="p", epoch=1, sequence=1, backends=backends, processes=())


async def set_policy(stores: Stores, backend: str, ensure: Ensure) -> None:
    change = PolicyChange(selector={}, ensure=ensure, wish=Wish(element=backend))
    verb = Verb.INSTALL if ensure is Ensure.PRESENT else Verb.DELETE
    await stores.admission.admit(replace(admission(verb, backend=backend, policy=change), target=Target()))


async def orders(stores: Stores, verb: Verb) -> list[Intent]:
    found = await stores.intents.read_some(node_id=None, backend=None, state=None, limit=1000)
    return [intent for intent in found if intent.verb is verb]


async def test_many_joiners_ask_a_slow_registry_once_and_a_delete_does_not_wait_for_it(stores: Stores) -> None:
    registry = SlowRegistry()
    returning = await healthy(stores, "returning")
    joiners = [await healthy(stores, f"joiner-{number}") for number in range(JOINERS)]
    await stores.observed.record([told(returning, ObservedBackend(name="native")), *map(told, joiners)])
    await set_policy(stores, "echo", Ensure.PRESENT)
    await set_policy(stores, "native", Ensure.ABSENT)
    async with keeping(stores, registry):

        async def deleted() -> bool:
            return [intent.node_id for intent in await orders(stores, Verb.DELETE)] == [returning.id]

        async def installed() -> bool:
            return len({intent.node_id for intent in await orders(stores, Verb.INSTALL)}) == JOINERS + 1

        await wait_until_async(deleted, what="what was deleted meanwhile is ordered away", within_s=5)
        assert await orders(stores, Verb.INSTALL) == []
        registry.answers.set()
        await wait_until_async(installed, what="everybody gets what the policy says", within_s=10)
    assert len(registry.asked) == 1, "one reference, one build: one question"
    operations = {intent.operation_id for intent in await orders(stores, Verb.INSTALL)}
    assert len(operations) <= 1 + JOINERS // 50 + 1


async def test_a_machine_that_joins_while_the_registry_is_away_gets_what_its_policy_meant_before(
    stores: Stores,
) -> None:
    await Resolver(Galleries(), Registry(), stores.kept_builds).resolve("native", [await healthy(stores, "first")])
    joiner = await healthy(stores, "joiner")
    await stores.observed.record([told(joiner)])
    await set_policy(stores, "native", Ensure.PRESENT)
    async with keeping(stores, Registry(away="registry.test")):

        async def ordered() -> bool:
            return any(intent.node_id == joiner.id for intent in await orders(stores, Verb.INSTALL))

        await wait_until_async(ordered, what="it is ordered by the digest known from before", within_s=10)
    [order] = [one for one in await orders(stores, Verb.INSTALL) if one.node_id == NodeId(joiner.id)]
    assert order.wish.digest == DIGEST
