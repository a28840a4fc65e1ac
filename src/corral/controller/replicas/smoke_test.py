"""How an operation replaces a backend version under running models: the interface to replicas, and the smoke test."""

import asyncio
from collections.abc import Collection, Sequence
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
    SmokeTestReply,
    SmokeTestRequest,
    decode,
    encode,
)
from corral.bus.subjects import BACKEND_INSTALL, BACKEND_SMOKE_TEST, CANCEL, MODEL_STOP, node_subject
from corral.core.backends.build import BuildRef
from corral.core.backends.rollout import ReplicaChange
from corral.core.backends.starts import StartEvidence, StartProof
from corral.core.errors import Conflict, CorralError, OutcomeUnknown, TimedOut, Unavailable
from corral.core.nodes.node import NodeId
from corral.core.processes.process import StartFailed

log = structlog.get_logger()

START_WITHIN_S = 120.0
STOP_WITHIN_S = 30.0
UNUSED_WITHIN_S = 660.0
"""A worker needs at most ten minutes for the smoke test of a version, and half a minute to stop its process."""
CANCEL_WITHIN_S = 2.0
PASSING = frozenset({Unavailable.code, OutcomeUnknown.code, TimedOut.code, "cancelled"})
"""Failures that are no verdict on a version. "cancelled": its process was stopped while it started, for example by
another frontend that tests the same intent, after one of the two lost its claim without knowing."""


class VersionFailed(Conflict):
    code = "version_failed"


class RolloutStalled(Conflict):
    """The new version could not be started, for a reason that is no verdict on it. It stays installed, and the replicas
    keep serving."""

    code = "rollout_stalled"


@dataclass(frozen=True, slots=True)
class Restored:
    """What happened to the previous version."""

    words: str = "the old version keeps serving"
    was_stopped: bool = False
    """Whether it had been stopped for the version that does not start."""


class VersionRollout(Protocol):
    """Moves replicas from one version to another, one by one."""

    async def find_models(self, families: Collection[str]) -> frozenset[str]:
        """Models whose configuration names one of these families: they use whichever build it has on a node."""
        ...

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        """Move to version `digest` of the backend, under the name it has on the node. Raises VersionFailed when the
        version does not start (the old one still serves, or `restore` brings it back), and RolloutStalled when it
        could not be tried. After any other error the outcome is unknown. When cancelled, it undoes what it began.
        Without changes it only waits for what an earlier call began with this backend on the node. `models`: those that
        may run a former build of the backend's family."""
        ...

    async def find_stopped(self, node_id: NodeId, backend: str, models: Collection[str] = ()) -> str | None:
        """The version of a replica that was stopped for the current version and has no successor yet; None if there is
        no such replica."""
        ...

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        """The previous version, `digest`, is current again. Start again what was stopped for the new version, and end
        the loads that were to replace its replicas. `wait`: for a while, until it serves."""
        ...

    async def note_stopped(self, node_id: NodeId, process_keys: Sequence[str]) -> None:
        """A LocalAI worker has ended these processes to change their backend."""
        ...


class SmokeTestBus(Protocol):
    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes: ...


async def try_unused_version(
    bus: SmokeTestBus, node_id: NodeId, *, backend: str, digest: str, operation_id: str
) -> StartProof:
    """No process of the backend runs on the node: its worker starts the new version once. Raises VersionFailed with its
    last output if it does not start."""
    request = SmokeTestRequest(backend=backend, digest=digest, op_id=operation_id)
    subject = node_subject(node_id, BACKEND_SMOKE_TEST)
    try:
        answer = decode(await bus.request(subject, encode(request), within_s=UNUSED_WITHIN_S), SmokeTestReply)
    except (TimedOut, OutcomeUnknown, asyncio.CancelledError):
        await _stop_process(bus, node_id, f"smoke-test-{operation_id}", "", within_s=CANCEL_WITHIN_S)
        raise
    if answer.success:
        evidence = StartEvidence.SMOKE_TEST if answer.tried else StartEvidence.NONE
        return StartProof(evidence=evidence, detail=answer.detail)
    if answer.code != StartFailed.code:
        raise Unavailable(f"the new version could not be tested: {answer.error or 'the worker gave no reason'}")
    raise VersionFailed(answer.error)


class SmokeTest:
    """For processes that this cluster does not route to: starts the new version once and stops it again.

    Running processes stay as they are and are shown as old. A backend that loads its model at its start is not tested:
    only the frontend that placed the model knows its arguments."""

    def __init__(self, bus: SmokeTestBus) -> None:
        self._bus = bus

    async def find_models(self, families: Collection[str]) -> frozenset[str]:
        return frozenset()

    async def roll_out(
        self,
        node_id: NodeId,
        changes: Sequence[ReplicaChange],
        *,
        backend: str,
        digest: str,
        operation_id: str,
        models: Collection[str] = (),
    ) -> None:
        tried = [change for change in changes if change.process.protocol != "openai"]
        if not tried:
            return
        change = tried[0]
        model = f"smoke-test-{operation_id}"
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
            await self._cancel(node_id, model)
            raise RolloutStalled(f"the worker did not answer the smoke test within {START_WITHIN_S:.0f} s") from error
        except (OutcomeUnknown, asyncio.CancelledError):
            await self._cancel(node_id, model)
            raise
        await _stop_process(self._bus, node_id, model, answer.address, within_s=STOP_WITHIN_S)
        if answer.success:
            return
        reason = answer.error or "the worker gave no reason"
        if answer.code in PASSING:
            raise Unavailable(f"the new version could not be tested: {reason}")
        raise VersionFailed(reason)

    async def find_stopped(self, node_id: NodeId, backend: str, models: Collection[str] = ()) -> str | None:
        return None

    async def restore(self, node_id: NodeId, *, backend: str, digest: str, wait: bool = True) -> Restored:
        return Restored()

    async def note_stopped(self, node_id: NodeId, process_keys: Sequence[str]) -> None:
        """Such processes are not replicas, and nothing is recorded about them."""

    async def _cancel(self, node_id: NodeId, model: str) -> None:
        """Cancel the start, or stop the process if it has started."""
        subject, request = node_subject(node_id, CANCEL), CancelRequest(op_id=model, keep=True)
        try:
            await self._bus.request(subject, encode(request), within_s=CANCEL_WITHIN_S)
        except CorralError as error:
            log.warning("smoke_test.not_cancelled", node=node_id, error=str(error))
        await _stop_process(self._bus, node_id, model, "", within_s=CANCEL_WITHIN_S)


async def _stop_process(bus: SmokeTestBus, node_id: NodeId, model: str, address: str, *, within_s: float) -> None:
    request = ModelStopRequest(process_key=f"{model}#0", model_name=model, expected_address=address)
    try:
        answer = decode(
            await bus.request(node_subject(node_id, MODEL_STOP), encode(request), within_s=within_s), ModelStopReply
        )
    except CorralError as error:
        log.warning("smoke_test.not_stopped", node=node_id, process=request.process_key, error=str(error))
        return
    if not answer.terminated:
        log.warning("smoke_test.not_stopped", node=node_id, process=request.process_key, error=answer.error)
