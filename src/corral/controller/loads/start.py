"""How one load's process comes to serve: its backend installed if missing, started, and its model loaded."""

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
from corral.controller.loads.context import BackendDeleted, LoadContext, LoadJobFailed
from corral.controller.loads.node_rpc import NodeRpc
from corral.controller.loads.progress import STARTING, LoadTracker
from corral.core.backends.build import BuildRef, ResolvedBackend
from corral.core.backends.variants import Unfit, Unresolved
from corral.core.errors import CorralError, InvalidInput, Unavailable
from corral.core.models.load_plan import EngineStart, backend_of, capacity_of, plan_engine, plan_weights
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend, find_backend
from corral.core.replicas.capacity import device_class
from corral.core.replicas.load_jobs import LoadState
from corral.core.replicas.replica import Replica
from corral.core.replicas.routing import LOCALAI_GRPC, OPENAI
from corral.store.serving.load_claims import ReplicaLoaded
from corral.store.serving.models import StoredModel
from corral.system.resolve_host import check_reach

log = structlog.get_logger()


class StartReplica:
    def __init__(self, op_id: str, tools: LoadContext, headway: LoadTracker, line: NodeRpc) -> None:
        self._op_id, self._tools, self._headway, self._line = op_id, tools, headway, line
        self.tried = ""
        """The digest of the version that the node was asked to start."""

    async def start(self, model: StoredModel, replica: Replica, node: Node, found: Mapping[str, str]) -> ReplicaLoaded:
        began_s = self._tools.clock.monotonic_s()
        backend = backend_of(model.config)
        await self._refuse_deleted(backend, node)
        resolved = await self._build(backend, node)
        engine = plan_engine(model.config, found)
        build = resolved.build if isinstance(resolved, ResolvedBackend) else None
        peers = await self._tools.peers.find(build.digest if build is not None else None, besides=node.id)
        request = InstallRequest(
            backend=backend,
            model_id=model.name,
            replica_index=replica.slot,
            op_id=self._op_id,
            corral=_extras(resolved, engine, peers, files=_files_of(model), generation=replica.generation),
        )
        self.tried = resolved.digest if isinstance(resolved, ObservedBackend) else resolved.build.digest
        reply = decode(await self._line.ask(node, BACKEND_INSTALL, encode(request)), InstallReply)
        if not reply.success:
            await self._refuse_deleted(backend, node)
            raise LoadJobFailed(f"{node.name} could not start {model.name}: {reply.error}")
        process = reply.corral or StartedProcess(backend=backend)
        if build is not None:
            await self._note_install(model.name, backend, build, node)
        protocol = process.protocol or LOCALAI_GRPC
        running = replace(replica, address=reply.address or node.address, protocol=protocol, token=process.token or "")
        await _check_own_address(running.address, node)
        if protocol == LOCALAI_GRPC:
            self._headway.show(LoadState.LOADING, node)
            await self._load_grpc(model, running, node, found)
        return ReplicaLoaded(
            address=running.address,
            protocol=protocol,
            token=running.token,
            process_key=process.process_key or f"{model.name}#{replica.slot}",
            backend=process.backend or backend,
            backend_digest=process.digest,
            epoch=node.epoch,
            pid=process.pid,
            capacity=capacity_of(model.config, engine.slots if protocol == OPENAI else None),
            load_options=msgspec.json.encode(engine).decode(),
            load_ms=int((self._tools.clock.monotonic_s() - began_s) * 1000),
            device=device_class(node),
        )

    async def _note_install(self, model: str, backend: str, build: BuildRef, node: Node) -> None:
        """Nobody asked for it by name, and whoever looks at what was changed on the node should find it."""
        try:
            await self._tools.stores.operations.note_install(
                self._tools.ids.uuid(),
                backend=backend,
                node_id=node.id,
                node_name=node.name,
                variant=build.name,
                digest=build.digest,
                cause=f"load of {model}",
            )
        except CorralError as error:  # the load has done its part, and goes on
            log.warning("load.install_not_noted", model=model, backend=backend, node=node.name, error=str(error))

    async def _load_grpc(self, model: StoredModel, replica: Replica, node: Node, found: Mapping[str, str]) -> None:
        if self._tools.grpc is None:
            raise LoadJobFailed(f"{model.name} needs a backend that speaks gRPC, and this frontend cannot load such")
        try:
            await self._tools.grpc.load(model.config, replica, paths=found, within_s=self._headway.window_s)
        except InvalidInput:
            raise
        except CorralError as error:
            raise LoadJobFailed(f"{node.name} could not load {model.name}: {error}") from error

    async def _refuse_deleted(self, backend: str, node: Node) -> None:
        """The delete is newer than the place: the load neither brings the backend back, nor fails by its own fault."""
        deletion = (await self._tools.needs.find_deletions(backend, [node])).get(node.id)
        if deletion is not None:
            raise BackendDeleted(deletion.reason)

    async def _build(self, backend: str, node: Node) -> ResolvedBackend | ObservedBackend:
        """What is installed is used as it is: an upgrade is somebody's decision, not a load's."""
        installed = await self._tools.stores.observed.read_backends([NodeId(node.id)])
        found = find_backend(installed.get(node.id, ()), backend)
        if found is not None:
            self._headway.show(LoadState.LOADING, node, reason=STARTING)
            return found
        self._headway.show(LoadState.INSTALLING, node)
        build = (await self._tools.builds.recall(backend, [node]))[node.id]
        if isinstance(build, Unfit):
            raise LoadJobFailed(f"no build of {backend} fits {node.name}: {build.reason}")
        if isinstance(build, Unresolved):
            raise LoadJobFailed(f"{node.name} does not have {backend}, which cannot be looked up now: {build.error}")
        return build


async def _check_own_address(address: str, node: Node) -> None:
    """Requests, with what people ask, go there: not to this machine, and to nothing that is not a machine."""
    try:
        await check_reach(address, told_from=node.registered_from, what="the address of the process")
    except (InvalidInput, Unavailable) as error:
        raise LoadJobFailed(f"{node.name} started it at an address that cannot be its own: {error}") from error


def _files_of(model: StoredModel) -> list[str]:
    """All that the process may read of the models directory."""
    plan = plan_weights(model.config)
    return sorted({*plan.names, *(file.filename for file in plan.files)})


def _known_options(build: BuildRef) -> frozenset[str]:
    manifest: Any = msgspec.json.decode(build.manifest) if build.manifest else {}
    return frozenset(manifest.get("options") or ())


def _extras(
    resolved: ResolvedBackend | ObservedBackend,
    engine: EngineStart,
    peers: list[BlobPeer],
    *,
    files: list[str],
    generation: int,
) -> CommandExtras:
    start = StartOptions(
        model=engine.model,
        model_name=engine.model_name,
        context=engine.context,
        slots=engine.slots,
        embeddings=engine.embeddings,
        files=files,
        generation=generation,
    )
    if isinstance(resolved, ObservedBackend):
        return CommandExtras(start=msgspec.structs.replace(start, soft_options=dict(engine.options)))
    known = _known_options(resolved.build)
    options = {name: value for name, value in engine.options.items() if name in known}
    return CommandExtras(
        build=resolved.build,
        start=msgspec.structs.replace(start, options=options),
        peers=peers or None,
    )
