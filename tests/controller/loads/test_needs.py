"""What one more replica of a model needs, read from a real store."""

from collections.abc import Iterable, Mapping

import pytest

from corral.controller.loads.needs import find_need
from corral.controller.loads.ports import LoadServices
from corral.core.backends.build import BuildResolution
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import Observation, ObservedBackend
from corral.core.replicas.placement import Need
from corral.store.stores import Stores
from corral.system import SystemClock
from sim.world import Builds, NoPeers, NoTraffic
from store.serving.test_replicas import IDS, TINY, add_nodes, make_node, nobody

OTHER_WEIGHTS = TINY.replace("tiny.gguf", "other.gguf")
MORE_WEIGHTS = TINY + "mmproj: pictures.gguf\n"
DOWNLOAD = "download_files: [{filename: tiny.gguf, uri: 'https://files.test/tiny.gguf', sha256: %s}]\n"


class NoBus:
    connected = False

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes:
        raise AssertionError(f"reading a need sends no request, not even {subject}")

    async def publish(self, subject: str, data: bytes) -> None:
        raise AssertionError(f"reading a need publishes nothing, not even {subject}")


async def nothing(*_: object) -> None:
    """Nothing is stopped and nobody is notified."""


class NoBuilds(Builds):
    asked = 0

    async def recall(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, BuildResolution | Unresolved]:
        self.asked += 1
        return {node.id: Unfit(f"No gallery has a backend named {reference}") for node in nodes}


async def find(stores: Stores, builds: Builds | None = None) -> Need:
    services = LoadServices(
        stores=stores,
        bus=NoBus(),
        builds=builds or Builds(),
        peers=NoPeers(),
        traffic=NoTraffic(),
        grpc=None,
        stager=None,
        shared_models=False,
        stop_replicas=nothing,
        notify_changed=nothing,
        lease_s=60.0,
        clock=SystemClock(),
        ids=IDS,
    )
    fleet = await stores.replicas.read_fleet(nobody)
    return await find_need(services, await stores.models.read("tiny"), fleet)


async def has(stores: Stores, node: str, backends: Iterable[str], *, epoch: int = 1) -> None:
    listed = tuple(ObservedBackend(name=name) for name in backends)
    observed = Observation(node_id=NodeId(node), instance="i", epoch=epoch, sequence=1, backends=listed, processes=())
    await stores.observed.record([observed])


@pytest.mark.parametrize(
    ("before", "after", "staged"),
    [
        pytest.param(TINY, TINY, True, id="the-same"),
        pytest.param(TINY, TINY + "context_size: 8192\n", True, id="another-option"),
        pytest.param(MORE_WEIGHTS, TINY, True, id="fewer-files"),
        pytest.param(TINY, MORE_WEIGHTS, False, id="one-file-more"),
        pytest.param(TINY, OTHER_WEIGHTS, False, id="another-file"),
        pytest.param(TINY + DOWNLOAD % ("a" * 64), TINY + DOWNLOAD % ("b" * 64), False, id="another-content"),
    ],
)
async def test_an_edit_that_changes_no_weights_brings_none(
    stores: Stores, before: str, after: str, staged: bool
) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    first = await stores.models.save(before, "ann")
    await stores.staged_files.note_staged("a", "tiny", first.revision, 40 << 30)
    await stores.models.save(after, "ann")
    need = await find(stores)
    assert need.staged_on == (frozenset({"a"}) if staged else frozenset())
    assert (need.disk_bytes("a") == 0, need.disk_bytes("b") > 40 << 30) == (staged, True)


async def test_weights_of_a_revision_that_nobody_remembers_are_not_counted_on(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"))
    await stores.models.save(TINY, "ann")
    await stores.staged_files.note_staged("a", "tiny", "forgotten", 40 << 30)
    assert (await find(stores)).staged_on == frozenset()


async def test_nodes_without_the_backend_would_have_to_get_it(stores: Stores) -> None:
    await add_nodes(stores, make_node("a"), make_node("b"))
    await stores.models.save(TINY, "ann")
    await has(stores, "a", ["llama-cpp"])
    await has(stores, "b", [])
    assert (await find(stores)).to_install_on == {"b"}


async def test_a_node_that_has_not_reported_since_it_registered_may_have_the_backend(stores: Stores) -> None:
    await add_nodes(stores, make_node("new"), make_node("restarted", epoch=2), make_node("without"))
    await stores.models.save(TINY, "ann")
    await has(stores, "restarted", [], epoch=1)
    await has(stores, "without", [])
    need = await find(stores, NoBuilds())
    assert set(need.variant_problems) == {"new", "restarted", "without"}
    assert need.unreported_on == {"new", "restarted"}
