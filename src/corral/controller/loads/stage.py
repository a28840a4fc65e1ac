"""The second step of a load: bring the model's files to the node."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corral.bus.messages import BlobPeer, ModelFetchReply, ModelFetchRequest, WeightsFile, decode, encode
from corral.bus.subjects import MODEL_FETCH
from corral.controller.loads.context import LoadContext
from corral.controller.loads.localai import publishing_staging
from corral.controller.loads.node_rpc import LoadJobFailed
from corral.core.errors import Conflict, CorralError, InvalidInput, Unavailable
from corral.core.models.config import ConfigFile
from corral.core.models.load_plan import WeightsPlan, borrowed_files, by_configured_name, plan_weights
from corral.core.nodes.node import Node
from corral.core.replicas.load_jobs import LoadState
from corral.core.replicas.replica import Replica
from corral.core.replicas.staging import FileTransfer
from corral.store.serving.models import StoredModel


async def stage_weights(load: LoadContext, model: StoredModel, replica: Replica, node: Node) -> Mapping[str, str]:
    """Brings the model's files to the node. Returns their absolute paths there, by name."""
    services, tracker = load.services, load.tracker
    plan = plan_weights(model.config)
    if not plan.files and not plan.names:
        return {}
    if not node.speaks_corral:
        return await _stage_on_localai(load, model, node, plan)
    borrowed: Mapping[str, tuple[ConfigFile, str]] = {}
    if not services.shared_models:
        borrowed = borrowed_files(model.config, [one.config for one in await load.stores.models.read_all()])
    plan = replace(plan, files=(*plan.files, *{file: None for file, _ in borrowed.values()}))
    files = () if services.shared_models else plan.files
    tracker.show(LoadState.STAGING, node)
    async with publishing_staging(tracker, services.bus, services.clock):
        tracker.note_staged(FileTransfer(files=len(files)))
        reply = await _fetch(load, model, replica, node, files, plan.names)
        tracker.end_transfer()
        if services.shared_models:
            _check_shared(plan, reply, node)
        else:
            await _check_same_names(load, model, borrowed, reply)
            reply = await _send(load, model, replica, node, plan, reply)
    size = tracker.weights_bytes = _size_of(plan, reply)
    names = sorted({*(file.filename for file in plan.files), *reply.found})
    staged_files = load.stores.staged_files
    await load.persist(lambda: staged_files.note_staged(node.id, model.name, model.revision, size, names))
    return by_configured_name(model.config, {name: found.path for name, found in reply.found.items()})


async def _stage_on_localai(load: LoadContext, model: StoredModel, node: Node, plan: WeightsPlan) -> Mapping[str, str]:
    """A LocalAI worker downloads nothing: this frontend downloads the files and sends them."""
    services, stager = load.services, load.services.localai_stager
    if stager is None:
        raise LoadJobFailed(f"this frontend cannot send files to {node.name}, which runs a LocalAI worker")
    load.tracker.show(LoadState.STAGING, node)
    stored = await load.stores.models.read_all()
    models = [one.config for one in stored]
    async with publishing_staging(load.tracker, services.bus, services.clock):
        try:
            if services.shared_models:
                found = await stager.find(node, plan.names)
            else:
                borrowed = borrowed_files(model.config, models)
                plan = replace(plan, files=(*plan.files, *{file: None for file, _ in borrowed.values()}))
                revisions = (*models, *(one.newest.config for one in stored))
                listed = [file for config in revisions for file in plan_weights(config).files]
                await stager.keep_only([*listed, *plan.files])
                found = await stager.stage(model.name, node, plan, load.tracker.note_staged)
        except CorralError as error:
            raise LoadJobFailed(f"{node.name} could not get the weights of {model.name}: {error}") from error
        load.tracker.end_transfer()
    reply = ModelFetchReply(success=True, found=dict(found))
    if services.shared_models:
        _check_shared(plan, reply, node)
    size = load.tracker.weights_bytes = _size_of(plan, reply)
    names = [] if services.shared_models else [model.name]  # the worker keeps them in a directory of that name
    staged_files = load.stores.staged_files
    await load.persist(lambda: staged_files.note_staged(node.id, model.name, model.revision, size, names))
    return by_configured_name(model.config, {name: found.path for name, found in reply.found.items()})


async def _fetch(
    load: LoadContext,
    model: StoredModel,
    replica: Replica,
    node: Node,
    files: Sequence[ConfigFile],
    paths: Sequence[str],
) -> ModelFetchReply:
    """The node downloads the files and reports which of the paths it has."""
    peers: list[BlobPeer] = []
    if files:  # nodes that have served the model are nearer than the origin
        staged = await load.stores.staged_files.read_staged(model.name)
        peers = await load.services.peers.among(staged.keys(), besides=node.id)
    request = ModelFetchRequest(
        model=model.name,
        files=[WeightsFile(file.filename, file.uri, file.sha256) for file in files],
        paths=list(paths),
        peers=peers,
        op_id=load.job.id,
        generation=replica.generation,
    )
    reply = decode(await load.rpc.request(node, MODEL_FETCH, encode(request)), ModelFetchReply)
    if not reply.success:
        raise LoadJobFailed(f"{node.name} could not get the weights of {model.name}: {reply.error}")
    return reply


async def _check_same_names(
    load: LoadContext, model: StoredModel, borrowed: Mapping[str, tuple[ConfigFile, str]], reply: ModelFetchReply
) -> None:
    """A file here and another model's download may have the same name. If they differ, the configuration is
    ambiguous."""
    fetched = {file.filename: file.digest.removeprefix("sha256:") for file in reply.files}
    stager = load.services.stager
    for name, (file, owner) in borrowed.items():
        here = await stager.sha256_of(name) if stager is not None else None
        if here is not None and here != fetched.get(posixpath.normpath(name), here):
            raise InvalidInput(
                f"{name} in the frontend's models directory differs from the file that {owner!r} downloads under that"
                f" name ({file.uri}), so {model.name!r} is ambiguous. Rename the file there and in {model.name!r},"
                " or delete it to use the download"
            )


async def _send(
    load: LoadContext, model: StoredModel, replica: Replica, node: Node, plan: WeightsPlan, reply: ModelFetchReply
) -> ModelFetchReply:
    """Sends the files that are on this frontend's machine. A directory may be incomplete on the node, so it is always
    compared; a file may have been replaced since it was sent. Files that the node has downloaded stay: a file of the
    same name here is a different one."""
    stager = load.services.stager
    if stager is None:
        return reply
    present = [name for name in plan.names if name in reply.found and reply.found[name].size is not None]
    staged = (await load.stores.staged_files.read_staged(model.name)).get(node.id)
    changed = await stager.changed_since(present, staged.at_ms if staged is not None else 0)
    names = [
        name
        for name in plan.names
        if (name not in present or name in changed) and not (reply.files and plan.is_fetched(name))
    ]
    if not names:
        return reply
    try:
        left = await stager.stage(model.name, node, names, load.tracker.note_staged)
    except (Conflict, Unavailable) as error:  # a problem of the node or the file; the job itself has no conflict
        raise LoadJobFailed(str(error)) from error
    if left is None:
        return reply
    load.tracker.begin_second_hop()
    return await _fetch(load, model, replica, node, left, plan.names)


def _check_shared(plan: WeightsPlan, reply: ModelFetchReply, node: Node) -> None:
    missing = [name for name in plan.paths if name not in reply.found]
    if missing:
        raise LoadJobFailed(
            f"{', '.join(missing)} is not in the models directory of {node.name}, which is configured as shared"
        )


def _size_of(plan: WeightsPlan, reply: ModelFetchReply) -> int | None:
    """Of all files of the model; unknown when one of them is a directory."""
    sizes: dict[str, int | None] = {file.filename: file.size for file in reply.files}
    sizes |= {name: found.size for name, found in reply.found.items()}
    known = [size for size in sizes.values() if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
