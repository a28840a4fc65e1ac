"""From one version of a backend to another under running models: the seam between operations and replicas."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from corral.bus.messages import (
    CommandExtras,
    InstallReply,
    InstallRequest,
    ModelStopReply,
    ModelStopRequest,
    decode,
    encode,
)
from corral.bus.subjects import BACKEND_INSTALL, MODEL_STOP, node_subject
from corral.core.errors import Conflict, CorralError
from corral.core.nodes import NodeId
from corral.core.rollout import ReplicaChange

log = structlog.get_logger()

START_WITHIN_S = 120.0
STOP_WITHIN_S = 30.0


class VersionFailed(Conflict):
    code = "version_failed"


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of the version before."""

    words: str = "the old one serves on"
    was_stopped: bool = False
    """It had been stopped for the one that does not start."""


class ReplicaSwitch(Protocol):
    """Moves what serves from one version to another, replica by replica, by the steps each change has."""

    async def switch(
        self, node_id: NodeId, changes: Sequence[ReplicaChange], *, backend: str, digest: str, operation_id: str
    ) -> None:
        """To the version `digest` of the backend as the node names it. Raises VersionFailed when that does not start,
        with the old one still serving or brought back by `restore`; any other error says nothing of the version.
        Without changes it only waits for what an earlier call began with the backend on the node."""
        ...

    async def restore(self, node_id: NodeId, *, backend: str) -> Restored:
        """The version before is current again: what was stopped for the one that does not start is started again."""
        ...


class Requests(Protocol):
    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class TrialStart:
    """Where nobody routes to replicas yet: the new version shows that it starts, and goes again.

    What serves is left alone and shown as an old process. A backend that loads its model as it starts is not tried:
    only whoever placed the model knows with what."""

    def __init__(self, bus: Requests) -> None:
        self._bus = bus

    async def switch(
        self, node_id: NodeId, changes: Sequence[ReplicaChange], *, backend: str, digest: str, operation_id: str
    ) -> None:
        tried = [change for change in changes if change.process.protocol != "openai"]
        if not tried:
            return
        change = tried[0]
        model = f"trial-{operation_id}"
        request = InstallRequest(
            backend=change.process.backend, model_id=model, corral=CommandExtras(digest=change.digest)
        )
        answer = decode(
            await self._bus.request(node_subject(node_id, BACKEND_INSTALL), encode(request), within_s=START_WITHIN_S),
            InstallReply,
        )
        await self._stop(node_id, model, answer)
        if not answer.success:
            raise VersionFailed(answer.error or "the worker gave no reason")

    async def restore(self, node_id: NodeId, *, backend: str) -> Restored:
        return Restored()

    async def _stop(self, node_id: NodeId, model: str, started: InstallReply) -> None:
        request = ModelStopRequest(process_key=f"{model}#0", model_name=model, expected_address=started.address)
        try:
            answer = decode(
                await self._bus.request(node_subject(node_id, MODEL_STOP), encode(request), within_s=STOP_WITHIN_S),
                ModelStopReply,
            )
        except CorralError as error:
            log.warning("trial.not_stopped", node=node_id, process=request.process_key, error=str(error))
            return
        if not answer.terminated:
            log.warning("trial.not_stopped", node=node_id, process=request.process_key, error=answer.error)
