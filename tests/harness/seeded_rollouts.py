"""Rollouts written into the store of a running frontend. Their nodes are away, so that they stay where they are put."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from corral.core.backends.build import BuildRef
from corral.core.backends.gates import GateOutcome, GateVerdict
from corral.core.backends.intents import BackendSpec, Verb
from corral.core.backends.rollouts import (
    Rollout,
    RolloutMember,
    RolloutOptions,
    RolloutPlan,
    Strategy,
    VersionChange,
    plan_waves,
)
from corral.store.engine.sqlite import SqliteDatabase
from corral.store.stores import Stores
from corral.system import SystemClock, SystemIds
from harness.fleet_store import admission
from harness.frontend import Frontend

T = TypeVar("T")
VERDICT = GateVerdict(gate="stable", outcome=GateOutcome.PASSED, detail="no process ended", node_class="cpu")


def in_store(frontend: Frontend, work: Callable[[Stores], Awaitable[T]]) -> T:
    async def run() -> T:
        database = SqliteDatabase(frontend.data / "corral.db", clock=SystemClock(), ids=SystemIds())
        try:
            return await work(Stores(database))
        finally:
            await database.close()

    return asyncio.run(run())


def seed(frontend: Frontend, *, strategy: Strategy = Strategy.WAVES, backend: str = "echo") -> str:
    """An upgrade of two nodes, one after the other, to a version that no other upgrade brings. Returns its id."""
    names = (f"{backend}-a", f"{backend}-b")
    for name in names:
        assert frontend.register(name=name).status in (200, 201)

    async def work(stores: Stores) -> str:
        nodes = [node for node in await stores.nodes.read_all() if node.name in names]
        members = [
            RolloutMember(
                node_id=node.id,
                node_name=node.name,
                node_class="cpu",
                build=backend,
                previous_version="1.0",
                previous_digest="sha256:old",
                is_healthy=False,
            )
            for node in nodes
        ]
        before = BackendSpec(reference=backend, build=BuildRef(name=backend, version="1.0", digest="sha256:old"))
        after = BackendSpec(
            reference=backend, build=BuildRef(name=backend, version="2.0", digest=f"sha256:{SystemIds().uuid()}")
        )
        plan = RolloutPlan(
            strategy=strategy,
            options=RolloutOptions(soak_s=5),
            waves=plan_waves(members, strategy, ("1",)),
            builds=(VersionChange(build=backend, version="2.0", digest=after.build.digest, previous=before),),
        )
        asked = admission(Verb.UPGRADE, *nodes, backend=backend, spec=after, rollout=plan)
        return (await stores.admission.admit(asked)).id

    return in_store(frontend, work)


def fail(frontend: Frontend, key: str) -> None:
    """Its gates fail, and its nodes have gone back."""

    async def work(stores: Stores) -> Rollout:
        rollout = await stores.rollouts.read_one(key)
        await stores.rollouts.save_verdicts(rollout, [VERDICT])
        assert await stores.operations.fail_rollout(rollout, "it is too slow")
        return rollout

    in_store(frontend, work)
