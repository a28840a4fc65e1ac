"""The last step of a load: install the backend if it is missing, start the process, and load the model into it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog

from corral.bus.messages import (
    BlobPeer,
    CommandExtras,
    InstallReply,
    InstallRequest,
    StartedProcess,
    StartOptions,
    decode,
    encode,
)
from corral.bus.subjects import BACKEND_INSTALL
from corral.controller.loads.context import LoadContext
from corral.controller.loads.needs import find_deletions
from corral.controller.loads.node_rpc import LoadJobFailed
from corral.controller.loads.tracker import ANSWERING, STARTING
from corral.core.backends.build import BuildRef, ResolvedBackend, plain_name
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import CorralError, InvalidInput, Unavailable
from corral.core.models.load_plan import EngineStart, backend_of, capacity_of, plan_engine, plan_weights
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.node_class import node_class
from corral.core.nodes.observed import ObservedBackend, find_backend
from corral.core.replicas.capacity import device_class
from corral.core.replicas.load_jobs import LoadState
from corral.core.replicas.replica import Replica
from corral.core.replicas.routing import LOCALAI_GRPC, OPENAI
from corral.store.serving.load_claims import ReplicaLoaded
from corral.store.serving.models import StoredModel
from corral.system.resolve_host import check_reach

log = structlog.get_logger()

LOCALAI_INSTALL_S = 900.0
"""How long a LocalAI worker may install without a word: before 2026-05-23 it reported no progress."""


class BackendDeleted(Unavailable):
    """The backend was deleted from the node of the load. The load is placed again."""

    code = "backend_deleted"


async def start_replica(
    load: LoadContext, model: StoredModel, replica: Replica, node: Node, paths: Mapping[str, str]
) -> ReplicaLoaded:
    """Installs the backend if it is missing, starts the process, and loads the model into it."""
    services = load.services
    began_s = services.clock.monotonic_s()
    backend = backend_of(model.config)
    await _check_not_deleted(load, backend, node)
    resolved = await _find_build(load, backend, node)
    build = resolved.build if isinstance(resolved, ResolvedBackend) else None
    engine = plan_engine(model.config, paths)
    load.digest = resolved.digest if isinstance(resolved, ObservedBackend) else resolved.build.digest
    request = InstallRequest(backend=backend, model_id=model.name, replica_index=replica.slot, op_id=load.job.id)
    if node.speaks_corral:
        peers = await services.peers.find(build.digest if build is not None else None, besides=node.id)
        start = _start_options(
            engine,
            files=_files_of(model),
            generation=replica.generation,
            lease_s=services.lease_s,
            memory_bytes=await _read_reserved(load, replica),
        )
        request = msgspec.structs.replace(request, corral=_extras(build, start, engine.options, peers))
    else:
        load.tracker.least_window_s = LOCALAI_INSTALL_S
        galleries = services.builds.galleries_text(backend)
        request = msgspec.structs.replace(request, backend=plain_name(backend), backend_galleries=galleries)
    reply = decode(await load.rpc.request(node, BACKEND_INSTALL, encode(request)), InstallReply)
    load.tracker.least_window_s = 0.0
    if not reply.success:
        await _check_not_deleted(load, backend, node)
        raise LoadJobFailed(f"{node.name} could not start {model.name}: {reply.error}")
    process = reply.corral or StartedProcess(backend=_installed_name(resolved), digest=load.digest)
    if build is not None:
        await _record_install(load, backend, build, node)
    protocol = process.protocol or LOCALAI_GRPC
    running = replace(replica, address=reply.address or node.address, protocol=protocol, token=process.token or "")
    await _check_address(running.address, node)
    if protocol == LOCALAI_GRPC:
        load.tracker.show(LoadState.LOADING, node)
        await _load_grpc(load, model, running, node, paths, process.fitted)
    return ReplicaLoaded(
        address=running.address,
        protocol=protocol,
        endpoints=process.endpoints,
        continuation=process.continuation,
        token=running.token,
        process_key=process.process_key or f"{model.name}#{replica.slot}",
        backend=process.backend or backend,
        backend_digest=process.digest,
        epoch=node.epoch,
        pid=process.pid,
        capacity=capacity_of(model.config, engine.slots if protocol == OPENAI else None),
        load_options=msgspec.json.encode(engine).decode(),
        load_ms=int((services.clock.monotonic_s() - began_s) * 1000),
        node_class=node_class(node),
        device=device_class(node),
    )


async def _read_reserved(load: LoadContext, replica: Replica) -> int | None:
    """The memory that is reserved now: it was corrected when the weights arrived."""
    rows = await load.stores.replicas.read_of_node(replica.node_id)
    return next((row.memory_bytes for row in rows if row.id == replica.id), replica.memory_bytes)


async def prove_replica(
    load: LoadContext, model: StoredModel, replica: Replica, node: Node, loaded: ReplicaLoaded
) -> None:
    """The first replica of a pending revision answers a small request before it gets those of clients."""
    if load.services.proof is None or not load.is_canary:
        return
    load.tracker.show(LoadState.LOADING, node, reason=ANSWERING)
    running = replace(replica, address=loaded.address, protocol=loaded.protocol, token=loaded.token)
    try:
        await load.services.proof.prove(model.config, running)
    except CorralError as error:
        raise LoadJobFailed(f"{node.name} started {model.name}, but {error}") from error


def _installed_name(resolved: ResolvedBackend | ObservedBackend) -> str:
    return resolved.name if isinstance(resolved, ObservedBackend) else resolved.build.name


async def _check_not_deleted(load: LoadContext, backend: str, node: Node) -> None:
    """A deletion that is newer than the placement wins. The load does not reinstall the backend, and has not failed."""
    deletion = (await find_deletions(load.services, backend, [node])).get(node.id)
    if deletion is not None:
        raise BackendDeleted(deletion.reason)


async def _find_build(load: LoadContext, backend: str, node: Node) -> ResolvedBackend | ObservedBackend:
    """An installed backend is used as it is: a load never upgrades."""
    installed = await load.stores.observed.read_backends([NodeId(node.id)])
    found = find_backend(installed.get(node.id, ()), backend)
    if found is not None:
        load.tracker.show(LoadState.LOADING, node, reason=STARTING)
        return found
    load.tracker.show(LoadState.INSTALLING, node)
    build = (await load.services.builds.recall(backend, [node]))[node.id]
    if isinstance(build, Unfit):
        raise LoadJobFailed(f"no build of {backend} fits {node.name}: {build.reason}")
    if isinstance(build, Unresolved):
        raise LoadJobFailed(f"{backend} is not installed on {node.name} and cannot be looked up now: {build.error}")
    return build


async def _record_install(load: LoadContext, backend: str, build: BuildRef, node: Node) -> None:
    """As an operation of its own, so that the node's history shows it."""
    try:
        await load.stores.operations.note_install(
            load.services.ids.uuid(),
            backend=backend,
            node_id=node.id,
            node_name=node.name,
            variant=build.name,
            digest=build.digest,
            cause=f"load of {load.job.model}",
        )
    except CorralError as error:  # the load itself has succeeded so far
        log.warning(
            "load.install_not_recorded", model=load.job.model, backend=backend, node=node.name, error=str(error)
        )


async def _load_grpc(
    load: LoadContext,
    model: StoredModel,
    replica: Replica,
    node: Node,
    paths: Mapping[str, str],
    fitted: Mapping[str, int],
) -> None:
    if load.services.grpc is None:
        raise LoadJobFailed(f"{model.name} needs a gRPC backend, and this frontend has no gRPC support")
    try:
        window_s = load.tracker.window_s
        await load.services.grpc.load(model.config, replica, paths=paths, fitted=fitted, within_s=window_s)
    except InvalidInput:
        raise
    except CorralError as error:
        raise LoadJobFailed(f"{node.name} could not load {model.name}: {error}") from error


async def _check_address(address: str, node: Node) -> None:
    """Requests are sent there, with their prompts: it must not be this machine or an address that is no machine."""
    try:
        await check_reach(address, source_address=node.registered_from, what="the address of the process")
    except (InvalidInput, Unavailable) as error:
        raise LoadJobFailed(f"{node.name} reported an address that cannot be its own: {error}") from error


def _files_of(model: StoredModel) -> list[str]:
    """All files of the models directory that the process may read."""
    plan = plan_weights(model.config)
    return sorted({*plan.names, *(file.filename for file in plan.files)})


def _start_options(
    engine: EngineStart, *, files: list[str], generation: int, lease_s: float, memory_bytes: int | None
) -> StartOptions:
    return StartOptions(
        model=engine.model,
        model_name=engine.model_name,
        context=engine.context,
        slots=engine.slots,
        memory_bytes=memory_bytes,
        embeddings=engine.embeddings,
        files=files,
        generation=generation,
        lease_s=lease_s,
    )


def _extras(
    build: BuildRef | None, start: StartOptions, options: Mapping[str, str], peers: list[BlobPeer]
) -> CommandExtras:
    if build is None:
        return CommandExtras(start=msgspec.structs.replace(start, soft_options=dict(options)))
    manifest: Any = msgspec.json.decode(build.manifest) if build.manifest else {}
    known = manifest.get("options") or ()
    found = {name: value for name, value in options.items() if name in known}
    return CommandExtras(build=build, start=msgspec.structs.replace(start, options=found), peers=peers or None)
