"""Smoke tests: start an installed version once, as its processes are started, see that it works, and stop it again."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from corral.artifacts import InstalledVersion, Trial, fill_trial
from corral.bus.messages import SmokeTestRequest, StartOptions
from corral.core.errors import Conflict, CorralError, NotFound, Unavailable
from corral.core.processes.process import (
    ENDED_WELL,
    SMOKE_TEST,
    Failed,
    ProcessReadiness,
    ProcessSpec,
    ProcessStopped,
    ProcessView,
    Ready,
    StartFailed,
)
from corral.system import Disk
from corral.worker.backends.backends import Backends
from corral.worker.processes.supervisor import Supervisor
from corral.worker.replicas.launch import StartSettings, plan_process, prepare_directory, process_key, version_id

log = structlog.get_logger()

GRPC_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Untestable:
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedTest:
    spec: ProcessSpec
    how: str
    """What it shows if it succeeds."""


@dataclass(frozen=True, slots=True)
class Tested:
    """It started, or it could not be tried. A version that does not start raises StartFailed."""

    tried: bool
    detail: str


def plan_smoke_test(
    version: InstalledVersion, settings: StartSettings, *, name: str, vulkan: tuple[str, ...] = ()
) -> PlannedTest | Untestable:
    """Pure. `name`: of the process."""
    manifest = version.manifest
    trial = manifest.trial
    if manifest.protocol == "localai-grpc":
        spec = plan_process(version, settings, model=name, replica=0, start=None, vulkan=vulkan)
        within_s = trial.within_s if trial is not None else GRPC_WITHIN_S
        how = "its gRPC health check answered"
    elif trial is None:
        return Untestable("it speaks OpenAI's API, and its corral.yaml has no `trial`")
    elif trial.model:
        start = StartOptions(model=fill_trial(trial, version.path).model, model_name=name)
        spec = plan_process(version, settings, model=name, replica=0, start=start)
        within_s, how = trial.within_s, f"{manifest.readiness.path} answered with the model of its trial"
    else:
        return _plan_command(version, settings, fill_trial(trial, version.path), name)
    readiness = replace(spec.readiness, within_s=within_s)
    return PlannedTest(replace(spec, readiness=readiness, labels=_labels(spec.labels["protocol"])), how)


def _plan_command(version: InstalledVersion, settings: StartSettings, trial: Trial, name: str) -> PlannedTest:
    spec = ProcessSpec(
        key=process_key(name, version.name, 0),
        backend=version.name,
        version_digest=version_id(version),
        command=trial.command,
        readiness=ProcessReadiness(kind="exits", within_s=trial.within_s, quiet_within_s=trial.within_s),
        environment=dict(version.manifest.environment),
        directory=str(version.path),
        host=settings.host,
        user=settings.user,
        labels=_labels(version.manifest.protocol),
    )
    return PlannedTest(spec, "the command of its trial ended with exit code 0")


def _labels(protocol: str) -> dict[str, str]:
    return {SMOKE_TEST: "1", "protocol": protocol}


@dataclass(frozen=True, slots=True)
class SmokeTests:
    backends: Backends
    supervisor: Supervisor
    settings: StartSettings
    disk: Disk

    async def run(self, request: SmokeTestRequest) -> Tested:
        """Its output stays in the log of its process, as of every process."""
        async with self.backends.held(request.backend):
            version = self.backends.current(request.backend)
            if version is None:
                raise NotFound(f"{request.backend} is not installed on this node, so it cannot be tested")
            if version_id(version) != request.digest:
                raise Conflict(
                    f"{request.backend} is at {version_id(version)} now, not at {request.digest}; nothing was tested"
                )
            vulkan = await asyncio.to_thread(prepare_directory, version, self.disk)
            planned = plan_smoke_test(version, self.settings, name=f"smoke-test-{request.op_id}", vulkan=vulkan)
            if isinstance(planned, Untestable):
                return Tested(False, planned.reason)
            await asyncio.to_thread(self._prepare, planned.spec)
            runner = await self.supervisor.begin(planned.spec)
        # Cancelled only when this worker ends: the next one stops the process.
        await runner.until(lambda it: it.is_over or isinstance(it.state, Ready))
        state = runner.state
        await self.supervisor.stop(planned.spec.key, reason="the smoke test is over")
        match state:
            case Failed():
                raise StartFailed(runner.key, state)
            case ProcessStopped(reason=reason) if reason != ENDED_WELL:
                raise Unavailable(f"{runner.key} was stopped before it was ready: {reason}")
        return Tested(True, planned.how)

    def _prepare(self, spec: ProcessSpec) -> None:
        """Blocking. What it may access must exist when it starts."""
        for path in spec.exchange:
            self.disk.make_directory(Path(path), private=False)


async def end_smoke_tests(supervisor: Supervisor, adopted: Iterable[ProcessView]) -> None:
    """Stops those that an earlier process of this worker began: nobody waits for them."""
    for view in adopted:
        if view.is_smoke_test:
            try:
                await supervisor.stop(view.key, reason="its smoke test was interrupted")
            except CorralError as error:  # its runner tries again
                log.warning("smoke_test.not_stopped", process=view.key, error=str(error))
