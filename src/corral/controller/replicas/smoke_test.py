"""From one version of a backend to another under running models: the seam between operations and replicas."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from corral.bus.messages import (
    CancelRequest,
    CommandExtras,
    InstallReply,
    InstallRequest,
    ModelStopReply,
    ModelStopRequest,
    decode,
    encode,
)
from corral.bus.subjects import BACKEND_INSTALL, CANCEL, MODEL_STOP, node_subject
from corral.core.backends.build import BuildRef
from corral.core.backends.rollout import ReplicaChange
from corral.core.errors import Conflict, CorralError, OutcomeUnknown, TimedOut, Unavailable
from corral.core.nodes.node import NodeId

log = structlog.get_logger()

START_WITHIN_S = 120.0
STOP_WITHIN_S = 30.0
CALL_OFF_WITHIN_S = 2.0
PASSING = frozenset({Unavailable.code, OutcomeUnknown.code, TimedOut.code, "cancelled"})
"""Failures that say nothing of a version: among others, its process was stopped while it started. Another frontend that
tries it for the same order does that, where one of the two has lost its claim and has not heard of it."""


class VersionFailed(Conflict):
    code = "version_failed"


class RolloutStalled(Conflict):
    """The new version could not be started for a reason that says nothing of it: it stays, and what serves goes on."""

    code = "switch_stalled"


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of the version before."""

    words: str = "the old one serves on"
    was_stopped: bool = False
    """It had been stopped for the one that does not start."""


class VersionRollout(Protocol):
    """Moves what serves from one version to another, replica by replica, by the steps each change has."""

    async def switch(
        self, node_id: NodeId, changes: Sequence[ReplicaChange], *, backend: str, digest: str, operation_id: str
    ) -> None:
        """To the version `digest` of the backend as the node names it. Raises VersionFailed when that does not start,
        with the old one still serving or brought back by `restore`, and SwitchStalled when it could not even be tried;
        any other error says that nobody knows. Cancelled, it leaves nothing behind that it began itself.
        Without changes it only waits for what an earlier call began with the backend on the node."""
        ...

    async def find_stopped(self, node_id: NodeId, backend: str) -> str | None:
        """The version from which a replica served that was stopped for the one that is current, where nothing serves
        in its place yet; None where there is no such replica."""
        ...

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        """The version before is current again, `digest`: what was stopped for the one that was meant is started again,
        and what was to take the places of replicas that serve from it ends. `wait`: for a while, until it serves."""
        ...


class Requests(Protocol):
    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


class SmokeTest:
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
            backend=change.process.backend,
            model_id=model,
            op_id=model,
            corral=CommandExtras(build=BuildRef(digest=change.digest)),
        )
        subject = node_subject(node_id, BACKEND_INSTALL)
        try:
            answer = decode(await self._bus.request(subject, encode(request), within_s=START_WITHIN_S), InstallReply)
        except TimedOut as error:
            await self._call_off(node_id, model)
            raise RolloutStalled(f"its trial start was not answered within {START_WITHIN_S:.0f} s") from error
        except (OutcomeUnknown, asyncio.CancelledError):
            await self._call_off(node_id, model)
            raise
        await self._stop(node_id, model, answer.address, within_s=STOP_WITHIN_S)
        if answer.success:
            return
        reason = answer.error or "the worker gave no reason"
        if answer.code in PASSING:
            raise Unavailable(f"the new version could not be tried: {reason}")
        raise VersionFailed(reason)

    async def find_stopped(self, node_id: NodeId, backend: str) -> str | None:
        return None

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        return Restored()

    async def _call_off(self, node_id: NodeId, model: str) -> None:
        """Whether it is being started or has been: nothing of it stays."""
        subject, request = node_subject(node_id, CANCEL), CancelRequest(op_id=model, keep=True)
        try:
            await self._bus.request(subject, encode(request), within_s=CALL_OFF_WITHIN_S)
        except CorralError as error:
            log.warning("trial.not_called_off", node=node_id, error=str(error))
        await self._stop(node_id, model, "", within_s=CALL_OFF_WITHIN_S)

    async def _stop(self, node_id: NodeId, model: str, address: str, *, within_s: float) -> None:
        request = ModelStopRequest(process_key=f"{model}#0", model_name=model, expected_address=address)
        try:
            answer = decode(
                await self._bus.request(node_subject(node_id, MODEL_STOP), encode(request), within_s=within_s),
                ModelStopReply,
            )
        except CorralError as error:
            log.warning("trial.not_stopped", node=node_id, process=request.process_key, error=str(error))
            return
        if not answer.terminated:
            log.warning("trial.not_stopped", node=node_id, process=request.process_key, error=answer.error)
