"""What a name means on each node: galleries as they are, a registry that only tells digests."""

import json

import pytest

from core.test_drift import machine
from corral.artifacts import Catalogue
from corral.artifacts.digests import Digest
from corral.artifacts.errors import SourceUnavailable
from corral.artifacts.galleries.entries import parse_backends
from corral.artifacts.pins import Pin, pinned_uri
from corral.artifacts.settings import GallerySettings
from corral.controller.resolve import ResolvedBackend, Resolver, wish_of
from corral.core.errors import NotFound
from corral.core.nodes import Node, NodeId
from corral.core.variants import Unfit, index_by_name

DIGEST = "sha256:" + "a" * 64
ENTRIES = [
    {"name": "echo", "capabilities": {"default": "cpu-echo", "nvidia": "cuda12-echo"}},
    {"name": "cpu-echo", "uri": "registry.test/echo:cpu", "mirrors": ["mirror.test/echo:cpu"], "version": "1.0"},
    {"name": "cuda12-echo", "uri": "registry.test/echo:cuda12"},
    {"name": "native", "uri": "registry.test/native:1", "corral": {"manifest": {"protocol": "openai", "start": ["x"]}}},
]


class Galleries:
    backend_settings = (GallerySettings(name="ours", url="https://galleries.test/index.yaml"),)

    async def backends(self) -> Catalogue:
        entries = parse_backends(json.dumps(ENTRIES).encode(), gallery="ours", url="u")
        return Catalogue(entries=tuple(entries), galleries=(), by_name=index_by_name(entries))

    async def refresh(self) -> None:
        return


class Registry:
    def __init__(self, *, away: str = "") -> None:
        self.asked: list[str] = []
        self._away = away

    async def pin(self, uri: str, sha256: Digest | None = None, *, signatures: object = None) -> Pin:
        self.asked.append(uri)
        if self._away and uri.startswith(self._away):
            raise SourceUnavailable(f"{self._away} does not answer.")
        return Pin(uri=pinned_uri(uri, DIGEST), digest=DIGEST, platforms=("linux/amd64",))


def node(name: str, *, platform: str = "linux/amd64", **fields: object) -> Node:
    return machine(id=NodeId(name), name=name, facts=json.dumps({"platform": platform}), **fields)


async def test_each_node_gets_the_build_that_fits_it_by_digest_asked_for_once() -> None:
    registry = Registry()
    nodes = [node("a"), node("b"), node("gpu", capability="nvidia"), node("arm", platform="linux/arm64")]
    found = await Resolver(Galleries(), registry).resolve("echo", nodes)
    a, gpu, arm = found[NodeId("a")], found[NodeId("gpu")], found[NodeId("arm")]
    assert isinstance(a, ResolvedBackend)
    assert a.variant == "cpu-echo"
    assert a.uris == (f"oci://registry.test/echo@{DIGEST}", f"oci://mirror.test/echo@{DIGEST}")
    assert isinstance(gpu, ResolvedBackend)
    assert gpu.variant == "cuda12-echo"
    assert isinstance(arm, Unfit)
    assert arm.reason == "cpu-echo has no build for linux/arm64; it has some for linux/amd64"
    assert sorted(registry.asked) == ["registry.test/echo:cpu", "registry.test/echo:cuda12"]
    wish = wish_of(a, element="echo", galleries="[]")
    assert (wish.name, wish.digest, wish.version, wish.uris) == ("cpu-echo", DIGEST, "1.0", a.uris)


async def test_a_mirror_names_the_version_when_the_source_is_away_and_nobody_is_an_error() -> None:
    resolver = Resolver(Galleries(), Registry(away="registry.test"))
    found = (await resolver.resolve("ours@cpu-echo", [node("a")]))[NodeId("a")]
    assert isinstance(found, ResolvedBackend)
    assert found.digest == DIGEST
    with pytest.raises(SourceUnavailable):
        await resolver.resolve("cuda12-echo", [node("gpu", capability="nvidia")])


async def test_what_a_localai_worker_cannot_start_is_not_sent_to_one() -> None:
    found = await Resolver(Galleries(), Registry()).resolve("native", [node("theirs", key_hash=None), node("ours")])
    assert isinstance(found[NodeId("theirs")], Unfit)
    assert isinstance(found[NodeId("ours")], ResolvedBackend)


async def test_a_name_nobody_has_is_not_found() -> None:
    with pytest.raises(NotFound):
        await Resolver(Galleries(), Registry()).resolve("nothing", [node("a")])
