"""What one more replica of a model needs, from what the store knows about the model and the nodes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from corral.controller.loads.ports import LoadServices
from corral.core.backends.deletions import DeletedBackends, Deletion, names_of_installed
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import CorralError, InvalidInput, NotFound
from corral.core.models.load_plan import backend_of, find_elastic, has_weights_of
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import find_backend
from corral.core.nodes.targets import Target, pick_nodes, pick_serving
from corral.core.replicas.placement import Need
from corral.store.serving.models import StoredModel
from corral.store.serving.replicas import FleetView
from corral.store.serving.staged_files import Staged
from corral.store.stores import Stores


async def find_need(
    services: LoadServices,
    model: StoredModel,
    fleet: FleetView,
    *,
    only_node: str | None = None,
    surge_on: str | None = None,
    with_away: bool = False,
) -> Need:
    """`with_away`: for all nodes that may take backends, also those that cannot take one now."""
    stores = services.stores
    staged = await stores.staged_files.read_staged(model.name)
    sizes = [one.weights_bytes for one in staged.values() if one.weights_bytes is not None]
    scheduling = fleet.scheduling.get(model.name)
    selector = scheduling.selector if scheduling is not None else {}
    possible = pick_nodes(fleet.nodes, Target(selector=selector)) if with_away else pick_serving(fleet.nodes, selector)
    eligible = [node for node in possible if only_node in (None, node.id)]
    found = await _find_builds(services, backend_of(model.config), eligible)
    deletions = (await read_deletes(stores)).find(eligible, found.names)
    peaks = await stores.footprints.read_peaks(model.name, model.revision)
    return Need(
        model=model.name,
        selector=selector,
        groups=frozenset(model.config.concurrency_groups),
        weights_bytes=max(sizes) if sizes else None,
        elastic=find_elastic(model.config),
        measured_bytes={device: peak.memory_bytes for device, peak in peaks.items()},
        measured_slots={device: peak.slots for device, peak in peaks.items() if peak.slots is not None},
        staged_on=await _find_staged(stores, model, staged),
        variant_problems=found.problems,
        unresolved_on=found.unresolved,
        unreported_on=await _find_unreported(stores, eligible) if found.problems else frozenset(),
        to_install_on=found.missing,
        unconfirmed_on=found.unconfirmed,
        deleted={node: deletion.reason for node, deletion in deletions.items()},
        only_node=only_node,
        surge_on=surge_on,
        shared_directory=services.shared_models,
    )


async def find_deletions(services: LoadServices, backend: str, nodes: Sequence[Node]) -> dict[str, Deletion]:
    """By node: the deletion that keeps the backend off it."""
    deletes = await read_deletes(services.stores)
    if not deletes:
        return {}
    names, missing = await _read_installed(services.stores, backend, nodes)
    for node_id, build_names in (await services.builds.find_names(backend, missing)).items():
        names[node_id] |= build_names
    return deletes.find(nodes, names)


async def read_deletes(stores: Stores) -> DeletedBackends:
    return await stores.intents.read_deletes(await stores.policies.read_all())


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeBuilds:
    names: Mapping[NodeId, set[str]]
    """By node: all names of the backend there."""
    missing: frozenset[str] = frozenset()
    """Nodes that do not have the backend."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By node: why no build is available."""
    unresolved: frozenset[str] = frozenset()
    """Nodes of `problems` for which the source could not be reached."""
    unconfirmed: frozenset[str] = frozenset()
    """Nodes that would have to download a build from a source that is unreachable now."""


async def _find_builds(services: LoadServices, backend: str, nodes: Sequence[Node]) -> _NodeBuilds:
    """The build that a load would use on each node. A node that has the backend installed needs none."""
    names, missing = await _read_installed(services.stores, backend, nodes)
    if not missing:
        return _NodeBuilds(names=names)
    lacking = frozenset(node.id for node in missing)
    try:
        builds = await services.builds.recall(backend, missing)
    except CorralError as error:
        return _NodeBuilds(
            names=names,
            missing=lacking,
            problems={node.id: str(error) for node in missing},
            unresolved=frozenset() if isinstance(error, NotFound | InvalidInput) else lacking,
        )
    problems: dict[str, str] = {}
    unresolved, unconfirmed = set(), set()
    for node_id, entry in builds.items():
        if isinstance(entry, Unfit):
            problems[node_id] = entry.reason
        elif isinstance(entry, Unresolved):
            problems[node_id] = f"{backend} is not installed and cannot be looked up now: {entry.error}"
            unresolved.add(node_id)
        else:
            names[node_id] |= {entry.build.name, entry.build.alias} - {""}
            if entry.unconfirmed:
                unconfirmed.add(node_id)
    return _NodeBuilds(
        names=names,
        missing=lacking,
        problems=problems,
        unresolved=frozenset(unresolved),
        unconfirmed=frozenset(unconfirmed),
    )


async def _read_installed(
    stores: Stores, backend: str, nodes: Sequence[Node]
) -> tuple[dict[NodeId, set[str]], list[Node]]:
    """All names of the backend on each node, and the nodes that do not have it."""
    installed = await stores.observed.read_backends()
    names: dict[NodeId, set[str]] = {}
    missing = []
    for node in nodes:
        here = installed.get(node.id, ())
        build = find_backend(here, backend)
        names[node.id] = {backend, *(names_of_installed(here, build) if build is not None else ())}
        if build is None:
            missing.append(node)
    return names, missing


async def _find_unreported(stores: Stores, nodes: Sequence[Node]) -> frozenset[str]:
    """Nodes that have not reported their backends since they registered: they may have the backend."""
    reported = await stores.observed.read_ages_s()
    return frozenset(node.id for node in nodes if node.id not in reported or reported[node.id][0] != node.epoch)


async def _find_staged(stores: Stores, model: StoredModel, staged: Mapping[str, Staged]) -> frozenset[str]:
    """Nodes that have all files of the model, also from another revision that uses the same files."""
    enough = {model.revision}
    for revision in {one.revision for one in staged.values()} - enough:
        with suppress(NotFound, InvalidInput):  # it was pruned, or this version cannot parse it
            if has_weights_of(await stores.models.read_config(model.name, revision), model.config):
                enough.add(revision)
    return frozenset(node for node, one in staged.items() if one.revision in enough)
