"""What a name means on each node: galleries as they are, a registry that only tells digests."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_drift import machine
from corral.artifacts import Catalogue, GalleryStatus
from corral.artifacts.digests import Digest
from corral.artifacts.errors import SourceUnavailable
from corral.artifacts.galleries.entries import parse_backends
from corral.artifacts.oci.pins import Pin, pinned_uri
from corral.artifacts.settings import GallerySettings
from corral.controller.backends.resolve import LookupLimits, Resolver, spec_of
from corral.core.backends.build import ResolvedBackend
from corral.core.backends.intents import BackendSpec
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import NotFound
from corral.core.nodes.node import Node, NodeId
from corral.store.stores import Stores
from harness.waiting import wait_until_async

DIGEST = "sha256:" + "a" * 64
ENTRIES = [
    {"name": "echo", "capabilities": {"default": "cpu-echo", "nvidia": "cuda12-echo"}},
    {"name": "cpu-echo", "uri": "registry.test/echo:cpu", "mirrors": ["mirror.test/echo:cpu"], "version": "1.0"},
    {"name": "cuda12-echo", "uri": "registry.test/echo:cuda12"},
    {"name": "native", "uri": "registry.test/native:1", "corral": {"manifest": {"protocol": "openai", "start": ["x"]}}},
]


class NothingKept:
    async def read(self, reference: str) -> dict[str, str]:
        return {}

    async def save(self, reference: str, builds: Mapping[str, str]) -> None:
        return


class Galleries:
    def __init__(self, *, unread: bool = False) -> None:
        self._unread = unread

    backend_settings = (GallerySettings(name="ours", url="https://galleries.test/index.yaml"),)

    async def backends(self) -> Catalogue:
        if self._unread:
            problem = GalleryStatus(name="ours", url="u", entries=0, age_s=0.0, problem="it does not answer")
            return Catalogue(entries=(), galleries=(problem,))
        entries = parse_backends(json.dumps(ENTRIES).encode(), gallery="ours", url="u")
        return Catalogue(entries=tuple(entries), galleries=())

    async def refresh(self) -> None:
        return

    async def look_again(self) -> None:
        return

    @property
    def backends_edition(self) -> int:
        return 1


class Registry:
    def __init__(self, *, away: str = "") -> None:
        self.asked: list[str] = []
        self.away = away
        self.digest = DIGEST

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: object = None) -> Pin:
        self.asked.append(uri)
        if self.away and uri.startswith(self.away):
            raise SourceUnavailable(f"{self.away} does not answer.")
        return Pin(uri=pinned_uri(uri, self.digest), digest=self.digest, platforms=("linux/amd64",))


def node(name: str, *, platform: str = "linux/amd64", **fields: Any) -> Node:
    return machine(id=NodeId(name), name=name, facts=json.dumps({"platform": platform}), **fields)


async def test_each_node_gets_its_fitting_build_by_digest_with_one_lookup() -> None:
    registry = Registry()
    nodes = [node("a"), node("b"), node("gpu", capability="nvidia"), node("arm", platform="linux/arm64")]
    found = await Resolver(Galleries(), registry, NothingKept()).resolve("echo", nodes)
    a, gpu, arm = found[NodeId("a")], found[NodeId("gpu")], found[NodeId("arm")]
    assert isinstance(a, ResolvedBackend)
    assert a.build.name == "cpu-echo"
    assert a.build.uris == (f"oci://registry.test/echo@{DIGEST}", f"oci://mirror.test/echo@{DIGEST}")
    assert isinstance(gpu, ResolvedBackend)
    assert gpu.build.name == "cuda12-echo"
    assert isinstance(arm, Unfit)
    assert arm.reason == "cpu-echo has no build for linux/arm64; it has builds for linux/amd64"
    assert sorted(registry.asked) == ["registry.test/echo:cpu", "registry.test/echo:cuda12"]
    spec = spec_of(a, reference="echo", galleries="[]")
    assert (spec.build, spec.build.version) == (a.build, "1.0")


class TwoGalleries(Galleries):
    """The first has only a CPU build of `echo`, under a name that the second uses for its own."""

    async def backends(self) -> Catalogue:
        first = [
            {"name": "echo", "capabilities": {"default": "cpu-echo"}},
            {"name": "cpu-echo", "uri": "registry.test/first:cpu"},
        ]
        entries = [
            *parse_backends(json.dumps(first).encode(), gallery="first", url="f"),
            *parse_backends(json.dumps(ENTRIES).encode(), gallery="ours", url="u"),
        ]
        return Catalogue(entries=tuple(entries), galleries=())


async def test_an_accelerated_node_gets_the_build_of_the_gallery_that_has_one() -> None:
    registry = Registry()
    resolver = Resolver(TwoGalleries(), registry, NothingKept())
    nodes = [node("a"), node("gpu", capability="nvidia")]
    found = await resolver.resolve("echo", nodes)
    assert sorted(registry.asked) == ["registry.test/echo:cuda12", "registry.test/first:cpu"]
    gpu = found[NodeId("gpu")]
    assert isinstance(gpu, ResolvedBackend)
    assert gpu.build.name == "cuda12-echo"
    assert gpu.reason.endswith("from gallery ours; gallery first has no accelerated build for nvidia")
    assert (await resolver.find_names("echo", nodes))[NodeId("gpu")] == {"cuda12-echo"}
    exact = (await resolver.resolve("ours@echo", nodes))[NodeId("a")]
    assert isinstance(exact, ResolvedBackend)
    assert exact.build.uris[0].startswith("oci://registry.test/echo@")


async def test_a_node_that_reports_only_its_gpu_gets_the_build_of_its_vendor() -> None:
    """A LocalAI worker of an earlier version reports no capability; LocalAI takes the vendor of a GPU above 4 GiB."""
    plain = node("gpu", capability=None, gpu_vendor="nvidia", total_vram=8 << 30)
    found = (await Resolver(Galleries(), Registry(), NothingKept()).resolve("echo", [plain]))[NodeId("gpu")]
    assert isinstance(found, ResolvedBackend)
    assert found.build.name == "cuda12-echo"


async def test_a_mirror_names_the_version_when_the_source_is_unreachable_and_no_source_at_all_is_an_error() -> None:
    resolver = Resolver(Galleries(), Registry(away="registry.test"), NothingKept())
    found = (await resolver.resolve("ours@cpu-echo", [node("a")]))[NodeId("a")]
    assert isinstance(found, ResolvedBackend)
    assert found.build.digest == DIGEST
    with pytest.raises(SourceUnavailable):
        await resolver.resolve("cuda12-echo", [node("gpu", capability="nvidia")])


async def test_what_a_localai_worker_cannot_start_is_not_sent_to_one() -> None:
    found = await Resolver(Galleries(), Registry(), NothingKept()).resolve(
        "native", [node("theirs", key_hash=None), node("ours")]
    )
    assert isinstance(found[NodeId("theirs")], Unfit)
    assert isinstance(found[NodeId("ours")], ResolvedBackend)


OWN = [
    {
        "name": "llama-cpp",
        "uri": "pypi://xllamacpp==1",
        "corral": {"manifest": {"protocol": "openai", "start": ["x"]}},
    }
]
THEIRS = [
    {"name": "llama-cpp", "capabilities": {"default": "cpu-llama-cpp"}},
    {"name": "cpu-llama-cpp", "uri": "quay.io/x:cpu", "alias": "llama-cpp"},
]


class BothGalleries(Galleries):
    """Corral's own, and LocalAI's."""

    async def backends(self) -> Catalogue:
        own = parse_backends(json.dumps(OWN).encode(), gallery="corral", url="corral:backends")
        theirs = parse_backends(json.dumps(THEIRS).encode(), gallery="localai", url="u")
        entries = (*own, *theirs)
        return Catalogue(entries=entries, galleries=())


async def test_each_kind_of_worker_gets_the_build_of_a_name_that_it_can_run(stores: Stores) -> None:
    nodes = [node("go", key_hash=None), node("ours")]
    resolver = Resolver(BothGalleries(), Registry(), stores.resolved_builds)
    found = await resolver.resolve("llama-cpp", nodes)
    builds = {name: one.build.name for name, one in found.items() if isinstance(one, ResolvedBackend)}
    assert builds == {"go": "cpu-llama-cpp", "ours": "llama-cpp"}
    assert await resolver.find_names("llama-cpp", nodes) == {
        "go": {"cpu-llama-cpp", "llama-cpp"},
        "ours": {"llama-cpp"},
    }
    kept = await stores.resolved_builds.read("llama-cpp")
    assert sorted(kept) == ["default", "localai:default"], "neither gets the other's while a registry is away"
    named = (await resolver.resolve("corral@llama-cpp", nodes))[NodeId("go")]
    assert isinstance(named, Unfit)
    assert named.reason == "a LocalAI worker cannot start llama-cpp, which needs a Corral manifest"


async def test_a_source_that_a_localai_worker_does_not_recognise_is_not_sent_to_one() -> None:
    resolver = Resolver(Galleries(), Registry(), NothingKept())
    nodes = [node("go", key_hash=None), node("ours")]
    bare = await resolver.resolve_location("registry.test/x:1", "x", "", nodes)
    assert isinstance(bare[NodeId("go")], Unfit)
    assert isinstance(bare[NodeId("ours")], ResolvedBackend)
    plain = await resolver.resolve_location("oci://registry.test/x:1", "x", "", nodes)
    assert isinstance(plain[NodeId("go")], ResolvedBackend)


async def test_a_name_nobody_has_is_not_found() -> None:
    with pytest.raises(NotFound):
        await Resolver(Galleries(), Registry(), NothingKept()).resolve("nothing", [node("a")])


async def test_a_lookup_is_known_to_every_frontend_while_the_registry_is_unreachable(stores: Stores) -> None:
    nodes = [node("a"), node("arm", platform="linux/arm64")]
    registry = Registry()
    before = await Resolver(Galleries(), registry, stores.resolved_builds).resolve(
        "cuda12-echo", [node("g", capability="nvidia")]
    )
    await Resolver(Galleries(), registry, stores.resolved_builds).resolve("native", nodes)
    registry.away = "registry.test"
    elsewhere = Resolver(Galleries(), registry, stores.resolved_builds)
    gpu = (await elsewhere.recall("cuda12-echo", [node("other", capability="nvidia")]))[NodeId("other")]
    assert isinstance(gpu, ResolvedBackend)
    known = before[NodeId("g")]
    assert isinstance(known, ResolvedBackend)
    assert (gpu.build.uris, gpu.build.digest, gpu.unconfirmed) == (
        known.build.uris,
        DIGEST,
        "registry.test does not answer.",
    )
    native = await elsewhere.recall("native", nodes)
    assert isinstance(native[NodeId("a")], ResolvedBackend)
    assert isinstance(native[NodeId("arm")], Unfit), "which platforms there are is known as well"
    again = (await elsewhere.resolve("native", nodes))[NodeId("a")]
    assert isinstance(again, ResolvedBackend)
    assert again.unconfirmed, "an install uses it as well"
    with pytest.raises(SourceUnavailable):
        await elsewhere.resolve("echo", [node("other", capability="nvidia")])


class OnlyAmd64(Registry):
    """Has the accelerated image for one platform only."""

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: object = None) -> Pin:
        pin = await super().pin(uri, sha256, signatures=signatures)
        return pin if "cuda12" in uri else replace(pin, platforms=("linux/amd64", "linux/arm64"))


async def test_a_node_whose_platform_the_accelerated_build_lacks_gets_the_next_build(stores: Stores) -> None:
    nodes = [node("pc", capability="nvidia"), node("jetson", capability="nvidia", platform="linux/arm64")]
    registry = OnlyAmd64()
    resolver = Resolver(Galleries(), registry, stores.resolved_builds)
    found = await resolver.resolve("echo", nodes)
    pc, jetson = found[NodeId("pc")], found[NodeId("jetson")]
    assert isinstance(pc, ResolvedBackend)
    assert isinstance(jetson, ResolvedBackend)
    assert (pc.build.name, jetson.build.name) == ("cuda12-echo", "cpu-echo")
    assert jetson.reason == "cpu-echo replaces cuda12-echo, which has no build for linux/arm64"
    lacking = await resolver.read_lacking(["echo"], nodes)
    assert lacking == {NodeId("jetson"): frozenset({"cuda12-echo"})}
    named = (await resolver.resolve("cuda12-echo", nodes))[NodeId("jetson")]
    assert isinstance(named, Unfit), "a build that was named is not replaced"

    registry.away = "registry.test"
    known = await Resolver(Galleries(), registry, stores.resolved_builds).recall("echo", nodes)
    assert {node_id: one.build.name for node_id, one in known.items() if isinstance(one, ResolvedBackend)} == {
        "pc": "cuda12-echo",
        "jetson": "cpu-echo",
    }


async def test_a_build_whose_registry_is_unreachable_is_unknown_to_its_own_nodes_only() -> None:
    resolver = Resolver(Galleries(), Registry(away="registry.test/echo:cuda12"), NothingKept())
    found = await resolver.recall("echo", [node("a"), node("gpu", capability="nvidia")])
    assert isinstance(found[NodeId("a")], ResolvedBackend)
    assert isinstance(found[NodeId("gpu")], Unresolved)


async def test_a_silent_registry_is_not_asked_by_every_load_in_turn() -> None:
    registry = Registry(away="registry.test")
    resolver = Resolver(Galleries(), registry, NothingKept())
    for _ in range(5):
        await resolver.recall("cuda12-echo", [node("gpu", capability="nvidia")])
    assert len(registry.asked) == 1


async def test_while_a_gallery_cannot_be_read_its_names_mean_what_they_meant(stores: Stores) -> None:
    await Resolver(Galleries(), Registry(), stores.resolved_builds).resolve("echo", [node("a")])
    unread = Resolver(Galleries(unread=True), Registry(), stores.resolved_builds)
    found = await unread.recall("echo", [node("a"), node("gpu", capability="nvidia")])
    assert isinstance(found[NodeId("a")], ResolvedBackend)
    assert isinstance(found[NodeId("gpu")], Unresolved)
    with pytest.raises(NotFound):
        await unread.recall("never-heard-of", [node("a")])


async def test_names_are_found_without_a_registry() -> None:
    registry = Registry()
    names = await Resolver(Galleries(), registry, NothingKept()).find_names("echo", [node("a")])
    assert names == {NodeId("a"): {"cpu-echo"}}
    assert registry.asked == []


class SlowRegistry(Registry):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: object = None) -> Pin:
        pin = await super().pin(uri, sha256, signatures=signatures)
        await self.answers.wait()
        return pin


async def test_a_slow_registry_is_waited_for_where_nothing_is_known_from_before() -> None:
    registry = SlowRegistry()
    resolver = Resolver(Galleries(), registry, NothingKept(), LookupLimits(answer_s=0.01))
    asked = [
        asyncio.create_task(resolver.recall("native", [node("a")])),
        asyncio.create_task(
            resolver.recall_spec(BackendSpec(reference="x", uri="registry.test/x:1"), "x", [node("a")])
        ),
    ]
    await asyncio.sleep(0.1)  # longer than where something is known
    registry.answers.set()
    for one in asked:
        assert isinstance((await one)[NodeId("a")], ResolvedBackend)
    assert len(registry.asked) == 2


async def test_an_answer_that_came_late_counts_for_whoever_asks_next(stores: Stores) -> None:
    registry = SlowRegistry()
    resolver = Resolver(Galleries(), registry, stores.resolved_builds, LookupLimits(answer_s=0.01, unknown_s=0.02))
    for _ in range(2):
        assert isinstance((await resolver.recall("native", [node("a")]))[NodeId("a")], Unresolved)
    registry.answers.set()

    async def known() -> bool:
        return isinstance((await resolver.recall("native", [node("a")]))[NodeId("a")], ResolvedBackend)

    await wait_until_async(known, what="the late answer is used", within_s=5)
    registry.answers.clear()
    assert await known()
    assert len(registry.asked) == 1
    assert list(await stores.resolved_builds.read("native")) == ["default"], "and every frontend knows it"


async def test_what_a_frontend_finds_again_replaces_what_another_has_kept_since(stores: Stores) -> None:
    registry = Registry()
    ours, theirs = (Resolver(Galleries(), registry, stores.resolved_builds) for _ in range(2))
    for resolver, digest in ((ours, DIGEST), (theirs, "sha256:" + "b" * 64), (ours, DIGEST)):
        registry.digest = digest
        await resolver.resolve("native", [node("a")])
    registry.away = "registry.test"
    found = (await theirs.recall("native", [node("a")]))[NodeId("a")]
    assert isinstance(found, ResolvedBackend)
    assert found.build.digest == DIGEST
