"""What people ask of versions: by number and by digest, on all nodes and on some, on both databases."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from controller.backends.test_resolve import Galleries
from corral.artifacts import Catalogue
from corral.artifacts.digests import Digest
from corral.artifacts.errors import SourceRejected
from corral.artifacts.galleries.entries import parse_backends
from corral.artifacts.oci.pins import Pin, pinned_uri
from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.fleet_builds import FleetBuilds
from corral.controller.backends.plan_rollout import RolloutPlanner
from corral.controller.backends.resolve import Resolver
from corral.core.backends.build import ResolvedBackend
from corral.core.backends.drift import plan_corrections
from corral.core.backends.intents import AttemptConfirmed, BackendSpec, Intent, Verb
from corral.core.backends.operations import Operation
from corral.core.backends.requests import (
    RequestedFollow,
    RequestedInstall,
    RequestedPin,
    RequestedRollback,
    RequestedUpgrade,
)
from corral.core.backends.rollouts import Rollout, RolloutOptions, RolloutRequest, Strategy
from corral.core.backends.variants import Unresolved
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.core.nodes.node import Node
from corral.core.nodes.observed import Observation, ObservedBackend
from corral.core.nodes.targets import Target
from corral.store.backends.create_operation import Admitted
from corral.store.stores import Stores
from corral.system import SystemIds
from harness.fleet_store import healthy
from store.backends.test_intents import claim, end


def digest(tag: str) -> str:
    """Of whatever the registry has under this tag."""
    return "sha256:" + tag.encode().hex().rjust(64, "0")


class Tags:
    """A registry: an image for each of its tags."""

    def __init__(self, *tags: str) -> None:
        self.tags = set(tags)

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: object = None) -> Pin:
        image, at, wanted = uri.partition("@")
        tag = image.rpartition(":")[2]
        found = next((one for one in self.tags if digest(one) == wanted), None) if at else tag
        if found not in self.tags:
            raise SourceRejected(f"there is no {uri}", status=404)
        return Pin(uri=pinned_uri(image.removeprefix("oci://"), digest(found)), digest=digest(found))


class Gallery(Galleries):
    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version
        self.capabilities = {"default": "cpu-echo", "nvidia": "cuda-echo"}

    async def backends(self) -> Catalogue:
        def build(name: str, tag: str) -> dict[str, Any]:
            return {"name": name, "uri": f"registry.test/echo:{tag}", "version": self.version}

        family = {"name": "echo", "capabilities": self.capabilities}
        offered = [family, build("cpu-echo", f"{self.version}-cpu"), build("cuda-echo", f"{self.version}-cuda")]
        entries = parse_backends(json.dumps(offered).encode(), gallery="ours", url="u")
        return Catalogue(entries=tuple(entries), galleries=())


class World:
    """Two nodes with the same build, a gallery that offers 1.3 and a registry that also has 1.2."""

    def __init__(self, stores: Stores) -> None:
        self.stores, self.gallery = stores, Gallery("1.3")
        self.registry = Tags("1.2-cpu", "1.3-cpu", "1.2-cuda", "1.3-cuda")
        resolver = Resolver(self.gallery, self.registry, stores.resolved_builds)
        self.builds = FleetBuilds(resolver, stores.version_pins, stores.intents, stores.rollouts)
        self.fleet = Fleet(
            stores=stores,
            resolver=resolver,
            builds=self.builds,
            rollouts=RolloutPlanner(stores, RolloutOptions(), lambda _: 0),
            ids=SystemIds(),
            on_change=self._nothing,
        )
        self.nodes: list[Node] = []
        self._sequence = 0

    async def _nothing(self) -> None:
        return

    async def join(self, name: str, **claims: Any) -> Node:
        node = await healthy(self.stores, name, **claims)
        self.nodes.append(node)
        return node

    async def carry_out(self, admitted: Admitted) -> Operation:
        """Every worker does what it is told, and reports it."""
        claims = await claim(self.stores)
        self._sequence += 1
        observations = []
        for one in claims:
            build = one.intent.spec.build
            before = (await self.stores.observed.read_backends([one.intent.node_id])).get(one.intent.node_id, [])
            kept = [old.digest for old in before if old.name == build.name and old.digest != build.digest]
            there = ObservedBackend(
                name=build.name, digest=build.digest, version=build.version, versions=(build.digest, *kept)
            )
            family = ObservedBackend(name="echo", is_meta=True, concrete=build.name)
            observations.append(
                Observation(
                    node_id=one.intent.node_id,
                    instance="p",
                    epoch=1,
                    sequence=self._sequence,
                    backends=(there, family),
                    processes=(),
                )
            )
            await end(self.stores, one, AttemptConfirmed(build.digest))
        await self.stores.observed.record(observations)
        return await self.stores.operations.read_one(admitted.id)

    async def digests(self) -> dict[str, str]:
        states = await self.fleet.read_states(self.nodes)
        return {state.node.name: found.digest for state in states if (found := state.find("echo")) is not None}

    async def offered(self, node: Node) -> str:
        """The digest that a load or a correction would install there."""
        resolved = (await self.builds.recall("echo", [node]))[node.id]
        assert isinstance(resolved, ResolvedBackend), resolved
        return resolved.build.digest


@pytest.fixture
async def world(stores: Stores) -> World:
    made = World(stores)
    for name in ("a", "b"):
        await made.join(name)
    return made


async def live_verbs(stores: Stores, nodes: Sequence[Node]) -> list[Verb]:
    newest: list[Intent] = await stores.intents.read_newest([node.id for node in nodes])
    return sorted(intent.verb for intent in newest if intent.state.live)


async def test_an_install_of_a_version_pins_it_for_whoever_joins_later(world: World) -> None:
    done = await world.carry_out(await world.fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann"))
    assert done.verb is Verb.INSTALL
    assert await world.digests() == {"a": digest("1.2-cpu"), "b": digest("1.2-cpu")}
    [pin] = await world.stores.version_pins.read_all()
    assert (pin.backend, pin.version, pin.created_by) == ("echo", "1.2", "ann")
    assert await world.offered(await world.join("c")) == digest("1.2-cpu")
    gpu = await world.join("gpu", capability="nvidia")
    assert await world.offered(gpu) == digest("1.2-cuda"), "another build is looked up by the version"
    [pin] = await world.stores.version_pins.read_all()
    assert {spec.build.name for spec in pin.specs} == {"cpu-echo", "cuda-echo"}
    again = await world.fleet.install(RequestedInstall(reference="echo"), actor="ann")
    newest = await world.stores.intents.read_newest([gpu.id])
    assert [intent.spec.build.digest for intent in newest] == [digest("1.2-cuda")], "a plain install keeps the pin"
    assert again.id != done.id


async def test_a_build_that_does_not_have_the_pinned_version_says_so(world: World) -> None:
    world.registry.tags.remove("1.2-cuda")
    await world.carry_out(await world.fleet.install(RequestedInstall(reference="ours@echo@1.2"), actor="ann"))
    gpu = await world.join("gpu", capability="nvidia")
    answer = (await world.builds.recall("echo", [gpu]))[gpu.id]
    assert isinstance(answer, Unresolved)
    assert "cuda-echo is pinned to 1.2 since" in str(answer.error)
    assert "does not have version 1.2" in str(answer.error)


async def test_pin_rollback_and_follow_by_number_by_digest_and_for_one_node(world: World) -> None:
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    assert set((await world.digests()).values()) == {digest("1.3-cpu")}
    with pytest.raises(Conflict, match="is not pinned"):
        await fleet.follow(RequestedFollow(reference="echo"), actor="ann")
    with pytest.raises(NotFound, match=r"there is no version '9'.*known versions: 1\.3"):
        await fleet.pin(RequestedPin(reference="echo", version="9"), actor="ann")

    first = Target(nodes=(world.nodes[0].id,))
    done = await world.carry_out(
        await fleet.pin(RequestedPin(reference="cpu-echo", version="v1.2", target=first, reason="leaks"), actor="ann")
    )
    assert (done.verb, [node.node_name for node in done.nodes]) == (Verb.PIN, ["a"])
    assert await world.digests() == {"a": digest("1.2-cpu"), "b": digest("1.3-cpu")}
    with pytest.raises(Conflict, match=r"pinned to 1\.2 since .* by ann \(leaks\)"):
        await fleet.upgrade(RequestedUpgrade(reference="echo", target=first), actor="ann")
    upgraded = await world.carry_out(await fleet.upgrade(RequestedUpgrade(reference="echo"), actor="ann"))
    assert {node.node_name: node.status.value for node in upgraded.nodes} == {"a": "not_applicable", "b": "success"}

    followed = await world.carry_out(await fleet.follow(RequestedFollow(reference="echo", target=first), actor="ann"))
    assert (followed.verb, followed.state.value, followed.nodes) == (Verb.FOLLOW, "completed", ())
    assert await world.digests() == {"a": digest("1.2-cpu"), "b": digest("1.3-cpu")}, "installed versions stay"
    assert (await fleet.upgrade(RequestedUpgrade(reference="echo@1.3", target=first), actor="ann")).id
    assert await live_verbs(stores, world.nodes) == [Verb.UPGRADE], "an upgrade to a version is a pin"
    pinned = await fleet.pin(RequestedPin(reference="echo", version=digest("1.2-cpu")[:70]), actor="ann")
    await world.carry_out(pinned)
    assert set((await world.digests()).values()) == {digest("1.2-cpu")}
    [pin] = await stores.version_pins.read_all()
    assert (pin.version, pin.target) == ("", Target()), "one for all nodes replaces those for some"

    both = await fleet.upgrade(RequestedUpgrade(reference="echo", unpin=True), actor="ann")
    await world.carry_out(both)
    assert set((await world.digests()).values()) == {digest("1.3-cpu")}
    await world.carry_out(await fleet.rollback(RequestedRollback(reference="echo", to="1.2"), actor="ann"))
    assert set((await world.digests()).values()) == {digest("1.2-cpu")}
    [pin] = await stores.version_pins.read_all()
    assert (pin.version, pin.reason) == ("1.2", "rolled back from 1.3")
    assert await world.offered(await world.join("c")) == digest("1.2-cpu")
    assert await live_verbs(stores, world.nodes) == []


async def test_a_cancelled_pin_brings_back_what_was_pinned_before(world: World) -> None:
    await world.carry_out(await world.fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann"))
    moved = await world.fleet.pin(RequestedPin(reference="echo", version="1.3"), actor="bob")
    assert await live_verbs(world.stores, world.nodes) == [Verb.UPGRADE, Verb.UPGRADE]
    await world.stores.operations.cancel(moved.id, actor="bob")
    [pin] = await world.stores.version_pins.read_all()
    assert (pin.version, pin.created_by) == ("1.2", "ann")
    states = await world.fleet.read_states(world.nodes)
    assert {state.desired_version("echo").version for state in states} == {"1.2"}


async def test_a_pinned_digest_that_is_gone_is_looked_up_by_its_number_or_the_reason_is_told(world: World) -> None:
    await world.carry_out(await world.fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann"))
    [pin] = await world.stores.version_pins.read_all()
    [spec] = pin.specs
    world.gallery.version = "1.4"
    world.registry.tags = {"1.4-cpu"}
    with pytest.raises(NotFound, match=r"is pinned, but its source no longer has it, and .* version 1\.2"):
        await world.builds.replace_gone(spec, "echo")
    world.registry.tags = {"1.4-cpu", "1.2-cpu"}
    gone = BackendSpec(reference="echo", build=spec.build.with_overrides(type(spec.build)(digest="sha256:gone")))
    await world.stores.version_pins.save_build(pin.id, gone, reason="test")
    found = await world.builds.replace_gone(gone, "echo")
    assert (found.build.digest, found.build.version) == (digest("1.2-cpu"), "1.2")
    [pin] = await world.stores.version_pins.read_all()
    assert [one.build.digest for one in pin.specs] == [digest("1.2-cpu")], "the pin knows it too"


async def test_a_short_beginning_that_fits_several_versions_is_refused(world: World) -> None:
    await world.carry_out(await world.fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann"))
    with pytest.raises(InvalidInput, match="matches several versions"):
        await world.fleet.pin(RequestedPin(reference="echo", version="sha256:000"), actor="ann")


async def test_an_install_over_another_version_is_an_upgrade_and_a_cancel_takes_it_back(world: World) -> None:
    fleet, stores = world.fleet, world.stores
    [a, b] = world.nodes
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    world.gallery.version = "1.4"
    world.registry.tags |= {"1.4-cpu", "1.4-cuda"}
    c = await world.join("c")
    began = await fleet.install(RequestedInstall(reference="echo"), actor="ann")
    newest = await stores.intents.read_newest([a.id, b.id, c.id])
    verbs = {one.node_id: one.verb for one in newest}
    assert verbs == {a.id: Verb.UPGRADE, b.id: Verb.UPGRADE, c.id: Verb.INSTALL}, "it is tried before it is accepted"
    for one in await claim(stores):
        if one.intent.node_id != b.id:
            await end(stores, one, AttemptConfirmed(digest("1.4-cpu")))
    await stores.operations.cancel(began.id, actor="ann")
    states = {state.node.id: state.effective_intent("echo") for state in await fleet.read_states(world.nodes)}
    wanted = {node_id: intent.spec.build.version for node_id, intent in states.items() if intent is not None}
    assert (wanted[a.id], wanted[c.id]) == ("1.3", "1.4"), "a first install that is done stays"


@pytest.mark.parametrize("forced", [False, True])
async def test_an_install_of_the_same_version_replaces_nothing(world: World, forced: bool) -> None:
    await world.carry_out(await world.fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    await world.fleet.install(RequestedInstall(reference="echo", force=forced), actor="ann")
    assert await live_verbs(world.stores, world.nodes) == [Verb.INSTALL, Verb.INSTALL]


@pytest.mark.parametrize("strategy", [None, Strategy.WAVES])
async def test_a_forced_install_of_the_version_that_is_there_is_no_rollout(
    world: World, strategy: Strategy | None
) -> None:
    for name in ("c", "d", "e"):
        await world.join(name)
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    again = RequestedInstall(reference="echo", force=True, rollout=RolloutRequest(strategy=strategy))
    await fleet.install(again, actor="ann")
    assert await stores.rollouts.read_recent() == []
    assert await live_verbs(stores, world.nodes) == [Verb.INSTALL] * 5
    assert len(await claim(stores)) == 5, "all at once"


async def test_a_forced_install_that_changes_the_version_is_a_rollout(world: World) -> None:
    """On nodes that have the version, the same request repairs it at once."""
    for name in ("c", "d", "e"):
        await world.join(name)
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    world.gallery.version = "1.4"
    world.registry.tags |= {"1.4-cpu", "1.4-cuda"}
    first = Target(nodes=(world.nodes[0].id,))
    await world.carry_out(await fleet.upgrade(RequestedUpgrade(reference="echo", target=first), actor="ann"))
    began = await fleet.install(RequestedInstall(reference="echo", force=True), actor="ann")
    rollout = await stores.rollouts.read_one(began.id)
    assert (rollout.strategy, sorted(one.member.node_name for one in rollout.nodes)) == (Strategy.WAVES, list("bcde"))
    assert await live_verbs(stores, world.nodes) == [Verb.INSTALL, *[Verb.UPGRADE] * 4], "with evidence of a start"


async def test_an_install_on_nodes_with_a_broken_version_is_no_rollout(world: World) -> None:
    for name in ("c", "d", "e"):
        await world.join(name)
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    broken = ObservedBackend(name="cpu-echo", problem="its files are damaged")
    family = ObservedBackend(name="echo", is_meta=True, concrete="cpu-echo")
    await stores.observed.record(
        [
            Observation(node_id=one.id, instance="p", epoch=1, sequence=9, backends=(broken, family), processes=())
            for one in world.nodes
        ]
    )
    await fleet.install(RequestedInstall(reference="echo", force=True), actor="ann")
    assert await stores.rollouts.read_recent() == []
    assert len(await claim(stores)) == 5, "all at once"


async def roll_out_in_waves(world: World, admitted: Admitted) -> Rollout:
    """The first wave has the version."""
    for one in await claim(world.stores):
        await end(world.stores, one, AttemptConfirmed(one.intent.spec.build.digest))
    return await world.stores.rollouts.read_one(admitted.id)


WAVES = RolloutRequest(strategy=Strategy.WAVES)


async def test_a_version_that_failed_gets_in_by_no_other_command(world: World) -> None:
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann"))
    pin = RequestedPin(reference="echo", version="1.3", rollout=WAVES)
    began = await fleet.pin(pin, actor="ann")
    rollout = await roll_out_in_waves(world, began)
    await stores.operations.fail_rollout(rollout, "too slow")
    held = r"1\.3 is held back since .*too slow.*`corral rollouts allow "
    with pytest.raises(Conflict, match=held):
        await fleet.pin(pin, actor="ann")
    with pytest.raises(Conflict, match=held):
        await fleet.install(RequestedInstall(reference="echo@1.3"), actor="ann")
    source = f"oci://registry.test/echo@{digest('1.3-cpu')}"
    with pytest.raises(Conflict, match=held):
        await fleet.install(RequestedInstall(reference="", uri=source, name="cpu-echo"), actor="ann")
    assert (await fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann")).id


async def test_a_node_that_joins_during_the_rollout_of_a_pin_gets_the_version_before(world: World) -> None:
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo@1.2"), actor="ann"))
    began = await fleet.pin(RequestedPin(reference="echo", version="1.3", rollout=WAVES), actor="ann")
    c = await world.join("c")
    assert await world.offered(c) == digest("1.2-cpu"), "the rollout has not proven the pinned version yet"
    [state] = await fleet.read_states([c])
    assert state.desired_version("echo", "cpu-echo").reason.endswith("has not reached this node with 1.3 yet")
    await world.carry_out(
        await fleet.install(RequestedInstall(reference="echo", target=Target(nodes=(c.id,))), actor="a")
    )
    later = 1 << 50
    corrections = plan_corrections(await fleet.read_states([c]), [], now_ms=later, settle_ms=0)
    assert corrections == [], "its version is as desired"
    rollout = await roll_out_in_waves(world, began)
    assert await stores.rollouts.begin_soak(rollout, left_behind=())
    assert await stores.rollouts.complete(await stores.rollouts.read_one(began.id))
    assert await world.offered(c) == digest("1.3-cpu")
    [correction] = plan_corrections(await fleet.read_states([c]), [], now_ms=later, settle_ms=0)
    assert (correction.verb, correction.spec.build.digest) == (Verb.UPGRADE, digest("1.3-cpu"))


async def test_a_preview_is_the_plan_of_the_operation_and_writes_nothing(world: World) -> None:
    fleet, stores = world.fleet, world.stores
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    before = await stores.intents.read_newest([node.id for node in world.nodes])
    requests = (
        RequestedInstall(reference="echo@1.2", rollout=WAVES),
        RequestedUpgrade(reference="echo@1.2", rollout=WAVES),
        RequestedPin(reference="echo", version="1.2", rollout=WAVES),
    )
    for request in requests:
        preview = await fleet.preview(request)
        assert preview.rollout is not None
        assert [[one.node_name for one in wave] for wave in preview.rollout.waves] == [["a"], ["b"]]
        assert {one.method_reason for wave in preview.rollout.waves for one in wave} == {"no replica runs there"}
        assert {intent.spec.build.version for intent in preview.intents} == {"1.2"}
    assert (await fleet.preview(RequestedUpgrade(reference="echo"))).rollout is None
    with pytest.raises(NotFound, match="there is no version '9'"):
        await fleet.preview(RequestedPin(reference="echo", version="9"))
    assert await stores.intents.read_newest([node.id for node in world.nodes]) == before
    assert await stores.version_pins.read_all() == []
    assert await stores.rollouts.read_recent() == []


async def test_a_rollout_that_changes_the_build_goes_back_to_the_build_before_also_for_who_joins(world: World) -> None:
    fleet, stores = world.fleet, world.stores
    world.gallery.capabilities = {"default": "cpu-echo"}
    moving = [await world.join(name, capability="nvidia") for name in ("g", "h")]
    target = Target(nodes=tuple(node.id for node in moving))
    await world.carry_out(await fleet.install(RequestedInstall(reference="echo"), actor="ann"))
    world.gallery.capabilities = {"default": "cpu-echo", "nvidia": "cuda-echo"}
    began = await fleet.upgrade(RequestedUpgrade(reference="echo", rollout=WAVES), actor="ann")
    rollout = await stores.rollouts.read_one(began.id)
    [change] = rollout.builds
    assert (change.build, change.digest) == ("cuda-echo", digest("1.3-cuda"))
    previous = change.previous.build
    assert (previous.name, previous.digest) == ("cpu-echo", digest("1.3-cpu"))
    assert previous.uris, "it can be installed anew"
    joins = await world.join("j", capability="nvidia")
    assert await world.offered(joins) == digest("1.3-cpu"), "the build before, as a whole"
    for one in await claim(stores):
        await end(stores, one, AttemptConfirmed(digest("1.3-cuda")))
    await stores.operations.fail_rollout(await stores.rollouts.read_one(began.id), "too slow")
    with pytest.raises(Conflict, match="too slow"):
        await fleet.upgrade(RequestedUpgrade(reference="echo", target=target), actor="ann")
    resolved = (await world.builds.recall("echo", [joins]))[joins.id]
    assert isinstance(resolved, ResolvedBackend)
    assert (resolved.build.name, resolved.build.uris) == ("cpu-echo", previous.uris)
