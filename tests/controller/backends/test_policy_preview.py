"""What a policy would bring to a node: told by galleries and registries, and not asked for again with every look."""

from typing import cast

from controller.backends.test_resolve import Galleries, NothingKept, Registry, node
from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.policy_preview import KEPT_S, PolicyPreview
from corral.controller.backends.resolve import Resolver
from corral.core.backends.build import BuildRef
from corral.core.backends.desired import UnresolvedPolicy
from corral.core.backends.intents import BackendSpec
from corral.core.backends.rollouts import HeldBack
from corral.core.backends.variants import Unfit
from corral.core.backends.version_pins import VersionPin
from corral.core.nodes.node import Node
from corral.store.backends.intents import IntentStore
from corral.store.backends.rollouts import RolloutStore
from corral.store.backends.version_pins import VersionPinStore
from harness.clocks import HeldClock

ECHO = BackendSpec(reference="echo")


def question(node: Node, backend: str = "echo", spec: BackendSpec = ECHO) -> UnresolvedPolicy:
    return UnresolvedPolicy(backend=backend, spec=spec, node=node)


class NoPins:
    async def read_all(self) -> list[VersionPin]:
        return []


class NoRollouts:
    async def read_held_back(self) -> list[HeldBack]:
        return []


def preview(registry: Registry, clock: HeldClock) -> PolicyPreview:
    resolver = Resolver(Galleries(), registry, NothingKept())
    builds = FleetBuilds(
        resolver,
        cast("VersionPinStore", NoPins()),
        cast("IntentStore", None),
        cast("RolloutStore", NoRollouts()),
    )
    return PolicyPreview(resolver, builds, clock)


async def test_names_are_those_of_the_build_that_fits_the_node() -> None:
    reader = preview(Registry(), HeldClock())
    here, arm = node("here"), node("arm", platform="linux/arm64")
    outside = BackendSpec(reference="mine", build=BuildRef(alias="echo"), uri="registry.test/mine:1")
    found = await reader.read([question(here), question(arm), question(here, "mine", outside)])
    assert found["echo", here.id] == frozenset({"echo", "cpu-echo"})
    assert isinstance(found["echo", arm.id], Unfit)
    assert found["mine", here.id] == frozenset({"mine", "echo"})


async def test_registries_are_asked_again_only_after_a_while() -> None:
    clock, registry = HeldClock(), Registry()
    reader = preview(registry, clock)
    here = node("here")
    first = await reader.read([question(here)])
    assert await reader.read([question(here)]) == first
    assert len(registry.asked) == 1
    clock.now_s += KEPT_S
    await reader.read([question(here)])
    assert len(registry.asked) == 2


async def test_an_unknown_preview_is_left_out_and_not_waited_for_every_time() -> None:
    registry = Registry(away="registry.test")
    reader = preview(registry, HeldClock())
    wanted = [question(node("gpu", capability="nvidia")), question(node("here"), "gone", BackendSpec(reference="gone"))]
    assert await reader.read(wanted) == {}
    assert await reader.read(wanted) == {}
    assert len(registry.asked) == 1
