"""How the files that one load needs come to its node."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corral.bus.messages import BlobPeer, ModelFetchReply, ModelFetchRequest, WeightsFile, decode, encode
from corral.bus.subjects import MODEL_FETCH
from corral.controller.loads.context import LoadContext, LoadJobFailed, written
from corral.controller.loads.localai_staging import telling_of_staging
from corral.controller.loads.node_rpc import NodeRpc
from corral.controller.loads.progress import LoadTracker
from corral.core.errors import Conflict, InvalidInput, NoResponders, Unavailable
from corral.core.models.config import ConfigFile
from corral.core.models.load_plan import WeightsPlan, borrowed_files, by_configured_name, plan_weights
from corral.core.nodes.node import Node
from corral.core.replicas.load_jobs import LoadState
from corral.core.replicas.replica import Replica
from corral.core.replicas.staging import Lot
from corral.store.serving.models import StoredModel


class StageWeights:
    def __init__(self, op_id: str, tools: LoadContext, headway: LoadTracker, line: NodeRpc) -> None:
        self._op_id, self._tools, self._headway, self._line = op_id, tools, headway, line
        self._generation = 0

    async def bring(self, model: StoredModel, replica: Replica, node: Node) -> Mapping[str, str]:
        """Absolute paths on the node, by name."""
        self._generation = replica.generation
        plan = plan_weights(model.config)
        if not plan.files and not plan.names:
            return {}
        borrowed = await self._borrowed(model)
        plan = replace(plan, files=(*plan.files, *{file: None for file, _ in borrowed.values()}))
        files = () if self._tools.shared_models else plan.files
        self._headway.show(LoadState.STAGING, node)
        async with telling_of_staging(self._headway, self._tools.bus, self._tools.clock):
            self._headway.note_staged(Lot(files=len(files)))
            reply = await self._fetch(model, node, files, plan.names)
            self._headway.end_lot()
            if self._tools.shared_models:
                _check_shared(plan, reply, node)
            else:
                await self._check_namesakes(model, borrowed, reply)
                reply = await self._send(model, node, plan, reply)
        self._headway.weights_bytes = _size_of(plan, reply)
        names = sorted({*(file.filename for file in plan.files), *reply.found})
        await written(
            model.name,
            lambda: self._tools.stores.staged_files.note_staged(
                node.id, model.name, model.revision, self._headway.weights_bytes, names
            ),
        )
        return by_configured_name(model.config, {name: found.path for name, found in reply.found.items()})

    async def _borrowed(self, model: StoredModel) -> Mapping[str, tuple[ConfigFile, str]]:
        if self._tools.shared_models:
            return {}
        return borrowed_files(model.config, [one.config for one in await self._tools.stores.models.read_all()])

    async def _check_namesakes(
        self, model: StoredModel, borrowed: Mapping[str, tuple[ConfigFile, str]], reply: ModelFetchReply
    ) -> None:
        """Where a file lies here under the name of another model's download, nobody can say which of them is meant."""
        fetched = {file.filename: file.digest.removeprefix("sha256:") for file in reply.files}
        for name, (file, owner) in borrowed.items():
            here = await self._tools.stager.sha256_of(name) if self._tools.stager is not None else None
            if here is not None and here != fetched.get(posixpath.normpath(name), here):
                raise InvalidInput(
                    f"{name} in the frontend's models directory is not what {owner!r} downloads under that name"
                    f" ({file.uri}), and {model.name!r} may mean either. Rename the file there and in {model.name!r};"
                    " or delete it, if the download is meant"
                )

    async def _send(self, model: StoredModel, node: Node, plan: WeightsPlan, reply: ModelFetchReply) -> ModelFetchReply:
        """What lies on this frontend's machine. A directory may have come only in part, so it is looked through; a file
        may have been replaced since it was sent. What the node has fetched stays: a namesake here is another file."""
        stager = self._tools.stager
        if stager is None:
            return reply
        there = [name for name in plan.names if name in reply.found and reply.found[name].size is not None]
        staged = (await self._tools.stores.staged_files.read_staged(model.name)).get(node.id)
        changed = await stager.changed_since(there, staged.at_ms if staged is not None else 0)
        names = [
            name
            for name in plan.names
            if (name not in there or name in changed) and not (reply.files and plan.is_fetched(name))
        ]
        if not names:
            return reply
        try:
            left = await stager.stage(model.name, node, names, self._headway.note_staged)
        except (Conflict, Unavailable) as error:  # of the node or the file, not with another's load
            raise LoadJobFailed(str(error)) from error
        if left is None:
            return reply
        self._headway.begin_second_leg()
        return await self._fetch(model, node, left, plan.names)

    async def _weights_peers(self, model: StoredModel, node: Node) -> list[BlobPeer]:
        """Machines that have served the model: near, and the origin is everybody's."""
        staged = await self._tools.stores.staged_files.read_staged(model.name)
        return await self._tools.peers.among(staged.keys(), besides=node.id)

    async def _fetch(
        self, model: StoredModel, node: Node, files: Sequence[ConfigFile], paths: Sequence[str]
    ) -> ModelFetchReply:
        """The node gets the files by itself, and tells which of the paths it has."""
        request = ModelFetchRequest(
            model=model.name,
            files=[WeightsFile(file.filename, file.uri, file.sha256) for file in files],
            paths=list(paths),
            peers=await self._weights_peers(model, node) if files else [],
            op_id=self._op_id,
            generation=self._generation,
        )
        try:
            data = await self._line.ask(node, MODEL_FETCH, encode(request))
        except NoResponders:
            return ModelFetchReply(success=True)  # a LocalAI worker: it takes files, and fetches none
        reply = decode(data, ModelFetchReply)
        if not reply.success:
            raise LoadJobFailed(f"{node.name} could not get the weights of {model.name}: {reply.error}")
        return reply


def _check_shared(plan: WeightsPlan, reply: ModelFetchReply, node: Node) -> None:
    missing = [name for name in plan.paths if name not in reply.found]
    if missing:
        raise LoadJobFailed(
            f"{', '.join(missing)} is not in the models directory of {node.name}, which is said to be shared"
        )


def _size_of(plan: WeightsPlan, reply: ModelFetchReply) -> int | None:
    """Of everything the model names; unknown when a part of it is a directory."""
    sizes: dict[str, int | None] = {file.filename: file.size for file in reply.files}
    sizes |= {name: found.size for name, found in reply.found.items()}
    known = [size for size in sizes.values() if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None
