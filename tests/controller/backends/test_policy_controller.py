"""Desired state beside a slow registry: each reference is asked for once, and deletes wait for nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from controller.backends.test_resolve import DIGEST, Galleries, Registry, SlowRegistry
from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.plan_rollout import RolloutPlanner
from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.backends.resolve import Resolver
from corral.core.backends.build import BuildRef
from corral.core.backends.drift import DriftCause
from corral.core.backends.exhausted import DEFAULT_EXHAUSTED_RETRY
from corral.core.backends.intents import AttemptConfirmed, AttemptRejected, BackendSpec, Intent, Verb
from corral.core.backends.policies import Ensure, PolicyChange
from corral.core.backends.rollouts import RolloutOptions
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import Observation, ObservedBackend, ObservedProcess, ProcessStatus
from corral.core.nodes.targets import Target
from corral.store.backends.intents import IntentStore
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from harness.databases import Rig
from harness.fleet_store import admission, healthy
from harness.reconcile import make_runtime
from harness.waiting import until, wait_until_async
from store.backends.test_intents import claim, end

JOINERS = 60


async def nothing() -> None:
    return


@asynccontextmanager
async def keeping(
    stores: Stores, registry: Registry, galleries: Galleries | None = None
) -> AsyncIterator[PolicyReconciler]:
    ids, resolver = SystemIds(), Resolver(galleries or Galleries(), registry, stores.resolved_builds)
    builds = FleetBuilds(resolver, stores.version_pins, stores.intents, stores.rollouts)
    rollouts = RolloutPlanner(stores, RolloutOptions(), lambda _: 0)
    fleet = Fleet(stores=stores, resolver=resolver, builds=builds, rollouts=rollouts, ids=ids, on_change=nothing)
    desired = PolicyReconciler(
        make_runtime(stores),
        stores=stores,
        fleet=fleet,
        resolver=resolver,
        builds=builds,
        exhausted_retry=DEFAULT_EXHAUSTED_RETRY,
        clock=SystemClock(),
        ids=ids,
        on_change=nothing,
    )
    running = asyncio.create_task(desired.run())
    try:
        yield desired
    finally:
        running.cancel()
        await asyncio.wait({running})


def told(node: Node, *backends: ObservedBackend) -> Observation:
    return Observation(node_id=node.id, instance="p", epoch=1, sequence=1, backends=backends, processes=())


async def set_policy(stores: Stores, backend: str, ensure: Ensure) -> None:
    change = PolicyChange(selector={}, ensure=ensure, spec=BackendSpec(reference=backend))
    verb = Verb.INSTALL if ensure is Ensure.PRESENT else Verb.DELETE
    await stores.admission.admit(replace(admission(verb, backend=backend, policy=change), target=Target()))


async def intents_of(stores: Stores, verb: Verb) -> list[Intent]:
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
            return [intent.node_id for intent in await intents_of(stores, Verb.DELETE)] == [returning.id]

        async def installed() -> bool:
            return len({intent.node_id for intent in await intents_of(stores, Verb.INSTALL)}) == JOINERS + 1

        await wait_until_async(deleted, what="what was deleted meanwhile is ordered away", within_s=5)
        assert await intents_of(stores, Verb.INSTALL) == []
        registry.answers.set()
        await wait_until_async(installed, what="everybody gets what the policy says", within_s=10)
    # Not one for each joiner. A run that begins before all intents are stored asks once more.
    assert len(registry.asked) <= 2, "one reference, one build: one question"
    operations = {intent.operation_id for intent in await intents_of(stores, Verb.INSTALL)}
    assert len(operations) <= 1 + JOINERS // 50 + 1


async def test_for_a_returning_node_deletes_come_first(stores: Stores, rig: Rig) -> None:
    node = await healthy(stores, "returning")
    spec = BackendSpec(
        reference="echo", build=BuildRef(name="echo", digest=DIGEST, uris=(f"oci://registry.test/echo@{DIGEST}",))
    )
    await stores.admission.admit(admission(Verb.INSTALL, node, spec=spec))
    [one] = await claim(stores)
    await end(stores, one, AttemptConfirmed(DIGEST))
    await rig.advance(120)
    await set_policy(stores, "native", Ensure.ABSENT)
    await stores.observed.record([told(node, ObservedBackend(name="native"))])  # it was wiped, and restored from before
    async with keeping(stores, Registry()):

        async def both() -> bool:
            return bool(await intents_of(stores, Verb.DELETE)) and len(await intents_of(stores, Verb.INSTALL)) == 2

        await wait_until_async(both, what="both are ordered", within_s=10)
    [delete] = await intents_of(stores, Verb.DELETE)
    assert delete.generation < max(intent.generation for intent in await intents_of(stores, Verb.INSTALL))


async def test_a_node_that_joins_while_the_registry_is_unreachable_gets_the_last_known_build(
    stores: Stores,
) -> None:
    await Resolver(Galleries(), Registry(), stores.resolved_builds).resolve("native", [await healthy(stores, "first")])
    joiner = await healthy(stores, "joiner")
    await stores.observed.record([told(joiner)])
    await set_policy(stores, "native", Ensure.PRESENT)
    async with keeping(stores, Registry(away="registry.test")):

        async def ordered() -> bool:
            return any(intent.node_id == joiner.id for intent in await intents_of(stores, Verb.INSTALL))

        await wait_until_async(ordered, what="it is ordered by the digest known from before", within_s=10)
    [intent] = [one for one in await intents_of(stores, Verb.INSTALL) if one.node_id == NodeId(joiner.id)]
    assert intent.spec.build.digest == DIGEST


class CountedChanges(IntentStore):
    """One read for each reconcile."""

    turns = 0

    async def read_changed(self, since_ms: int) -> tuple[int, set[NodeId], bool]:
        self.turns += 1
        return await super().read_changed(since_ms)


async def test_a_version_that_took_down_the_serving_one_is_not_retried_but_its_successor_is_installed(
    stores: Stores, rig: Rig
) -> None:
    old, broken, mended = ("sha256:" + letter * 64 for letter in "0bc")
    node = await healthy(stores, "a")
    await stores.observed.record([told(node, ObservedBackend(name="native", digest=old))])
    spec = BackendSpec(
        reference="native", build=BuildRef(name="native", digest=broken, uris=(f"oci://registry.test/native@{broken}",))
    )
    await stores.admission.admit(admission(Verb.UPGRADE, node, backend="native", spec=spec))
    [one] = await claim(stores)
    await end(stores, one, AttemptRejected("it does not start, and what served was stopped for it", final=True))
    await rig.advance(120)
    rig.run_sql(f"UPDATE nodes SET changed_at = {rig.clock.now_ms()}, presence_since = {rig.clock.now_ms()}")
    registry, changes = Registry(), CountedChanges(stores.database)
    stores.intents = changes
    registry.digest = broken
    async with keeping(stores, registry):
        await until(lambda: registry.asked, what="its reference is looked up again", within_s=10)
        seen = changes.turns
        await until(lambda: changes.turns >= seen + 2, what="the answer is seen", within_s=15)
    assert [intent.spec.build.digest for intent in await intents_of(stores, Verb.UPGRADE)] == [broken], "once is enough"
    registry.digest = mended
    async with keeping(stores, registry):

        async def ordered() -> bool:
            return mended in [intent.spec.build.digest for intent in await intents_of(stores, Verb.UPGRADE)]

        await wait_until_async(ordered, what="another version is worth a try", within_s=10)


class ChangingGalleries(Galleries):
    edition = 1

    @property
    def backends_edition(self) -> int:
        return self.edition


async def test_a_change_of_galleries_before_a_failure_is_no_reason_to_retry(stores: Stores, rig: Rig) -> None:
    """Also if it is first seen together with the policy whose install then fails."""
    node = await healthy(stores, "a")
    await stores.observed.record([told(node)])
    galleries, changes = ChangingGalleries(), CountedChanges(stores.database)
    stores.intents = changes
    async with keeping(stores, Registry(), galleries) as desired:

        async def reconcile() -> None:
            """Once at least, from the beginning to the end."""
            seen = changes.turns

            def has_begun_twice() -> bool:
                desired.loop.notify()
                return changes.turns >= seen + 2

            await until(has_begun_twice, what="it was reconciled", within_s=15)

        await reconcile()
        await rig.advance(30)
        await reconcile()
        galleries.edition += 1
        policy = PolicyChange(selector={}, ensure=Ensure.PRESENT, spec=BackendSpec(reference="native"))
        await stores.admission.admit(admission(Verb.INSTALL, node, backend="native", policy=policy))
        await reconcile()
        await rig.advance(1)
        [one] = await claim(stores)
        await end(stores, one, AttemptRejected("the registry cannot be reached", final=True))
        await rig.advance(40)
        await reconcile()
        await reconcile()
    assert len(await intents_of(stores, Verb.INSTALL)) == 1


async def test_a_process_that_still_runs_the_build_before_is_drift(stores: Stores) -> None:
    """Of a model that names the family, which is another build on the node now."""
    node = await healthy(stores, "n")
    spec = BackendSpec(reference="echo", build=BuildRef(name="cuda-echo", digest=DIGEST))
    await stores.admission.admit(admission(Verb.INSTALL, node, spec=spec))
    [one] = await claim(stores)
    await end(stores, one, AttemptConfirmed(DIGEST))
    await stores.models.save("name: tiny\nbackend: echo\n", "ann")
    backends = (
        ObservedBackend(name="cuda-echo", digest=DIGEST),
        ObservedBackend(name="cpu-echo", digest="sha256:cpu"),
        ObservedBackend(name="echo", is_meta=True, concrete="cuda-echo"),
    )
    stuck = ObservedProcess(
        process_key="tiny#0",
        model="tiny",
        replica=0,
        backend="cpu-echo",
        digest="sha256:cpu",
        state=ProcessStatus.READY,
    )
    await stores.observed.record([replace(told(node, *backends), processes=(stuck,))])
    async with keeping(stores, Registry()) as desired:
        [drift] = (await desired.read_snapshot()).find_drift()
    assert (drift.cause, drift.process_key) == (DriftCause.OLD_PROCESS, "tiny#0")
