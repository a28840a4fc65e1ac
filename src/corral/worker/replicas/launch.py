"""Plans the process spec of a replica from an installed version and a request."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from corral.artifacts import LOCALAI_LAUNCHER, InstalledVersion, Manifest, StartCommand, StartRequest, plan_start
from corral.bus.messages import StartOptions
from corral.core.errors import InvalidInput
from corral.core.processes.process import Fill, ProcessKey, ProcessReadiness, ProcessSpec
from corral.core.replicas.llama_cpp import ENGINE_CONTEXT, EngineMachine, LlamaCppPlan, WeightFacts, plan_llama_cpp
from corral.settings.values import is_loopback_host
from corral.system import Disk
from corral.worker.backends.system_backends import SYSTEM
from corral.worker.files.areas import OutsideArea, split_key
from corral.worker.processes.fitted import label_fitted
from corral.worker.processes.localai_grpc import TOKEN_VARIABLE

# A gRPC backend is ready before it loads a model; only importing its libraries takes time.
GRPC_READY_WITHIN_S = 600.0
GRPC_QUIET_WITHIN_S = 60.0
HTTP_READY_WITHIN_S = 6 * 3600.0
LLAMA_CPP_LAUNCHER = "llama_cpp"
LLAMA_CPP = "llama-cpp"
"""The alias of LocalAI's builds, and the end of their names."""
_FIELDS = ("{port}", "{host}", "{token}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPaths:
    """Directories of files that backends may access. Does not check whether the files exist."""

    models: str
    own_name: tuple[str, ...] = ()
    """Directories in which a model may have its own subdirectory."""
    exchange: tuple[str, ...] = ()
    """Directories of files that belong to one request and have unguessable names."""
    private: tuple[str, ...] = ()
    """Corral's own directories; they contain model files only below `models`."""

    def of_model(self, model: str, start: StartOptions | None) -> tuple[str, ...]:
        options = start or StartOptions()
        names = [os.path.join(self.models, name) for name in options.files or () if _is_name(name)]
        if options.files is None and _is_name(model):
            names += [os.path.join(place, model) for place in self.own_name]
        values = [options.model, *options.options.values(), *options.soft_options.values()]
        names += [os.path.normpath(path) for path in values if path.startswith("/")]
        return tuple(sorted({name for name in names if self._may_be_read(name)}))

    def _may_be_read(self, path: str) -> bool:
        in_models = path.startswith(f"{self.models}/")
        return in_models or not any(
            _is_within(path, one) or _is_within(one, path) for one in (*self.private, self.models)
        )

    def refuse_around(self, path: str) -> None:
        """Rejects a directory that contains private ones: access to a directory includes its contents."""
        if path.startswith("/") and any(_is_within(one, os.path.normpath(path)) for one in self.private):
            raise InvalidInput(
                f"the model's path {path} contains Corral's own directory, which no backend may read. Set the"
                " model's own file or directory."
            )


def _is_within(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")


def _is_name(name: str) -> bool:
    with contextlib.suppress(OutsideArea):
        return not name.startswith("/") and bool(split_key(name))
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    host: str
    """The address on which backends listen."""
    files: ModelPaths = ModelPaths(models="/nonexistent")
    user: str | None = None
    machine: EngineMachine = field(default_factory=EngineMachine)
    shared_token: str | None = field(default=None, repr=False)
    """The token of all processes, for LocalAI frontends; None if each process has its own."""


def process_key(model: str, backend: str, replica: int) -> ProcessKey:
    return ProcessKey(f"{model or backend}#{replica}")


def version_id(version: InstalledVersion) -> str:
    """The `version_digest` of its processes. A directory created by LocalAI may have no digest."""
    return version.digest or f"directory:{version.path}"


def plan_process(
    version: InstalledVersion,
    settings: StartSettings,
    *,
    model: str,
    replica: int,
    start: StartOptions | None,
    vulkan: tuple[str, ...] = (),
    generation: int | None = None,
    weights: WeightFacts | None = None,
) -> ProcessSpec:
    """Pure. The supervisor fills in a free port."""
    manifest = version.manifest
    options = start or StartOptions()
    _refuse_fields(options)
    settings.files.refuse_around(options.model)
    if manifest.protocol == "openai" and not options.model:
        raise InvalidInput(
            f"{version.name} loads its model at start, but the request names none; LocalAI frontends do not support"
            " this. Install a gRPC build of this backend, or use a Corral frontend."
        )
    fitted = _fit_engine(manifest, options, settings.machine, weights)
    command = plan_start(
        manifest,
        version.path,
        StartRequest(
            host=settings.host,
            port=None,
            model=options.model,
            model_name=options.model_name,
            context=fitted.context,
            slots=fitted.slots,
            embeddings=options.embeddings,
            options=tuple(sorted({**_known(fitted.soft_options, manifest), **options.options}.items())),
        ),
    )
    environment, readiness = _plan_protocol(version, settings, command, vulkan)
    return ProcessSpec(
        key=process_key(model, version.name, replica),
        backend=version.name,
        version_digest=version_id(version),
        command=tuple(Fill(part) if "{port}" in part else part for part in command.argv),
        readiness=readiness,
        environment=environment,
        directory=str(command.working_dir),
        host=settings.host,
        user=settings.user,
        reads=settings.files.of_model(model, start),
        exchange=settings.files.exchange if manifest.protocol == "localai-grpc" else (),
        labels={
            "model": model or version.name,
            "replica": str(replica),
            "protocol": manifest.protocol,
            "endpoints": " ".join(manifest.endpoints),
            "continuation": manifest.continuation or "",
            **_fit_grpc(version, start, settings.machine, weights),
        },
        generation=generation,
    )


def _plan_protocol(
    version: InstalledVersion, settings: StartSettings, command: StartCommand, vulkan: tuple[str, ...]
) -> tuple[dict[str, str | Fill], ProcessReadiness]:
    """The environment, with the token if requests need one, and how the process shows that it is ready."""
    environment: dict[str, str | Fill] = dict(command.environment)
    if version.manifest.protocol == "localai-grpc":
        environment |= _grpc_environment(settings, vulkan)
        return environment, ProcessReadiness(
            kind="grpc", within_s=GRPC_READY_WITHIN_S, quiet_within_s=GRPC_QUIET_WITHIN_S
        )
    if command.token_env:
        environment[command.token_env] = Fill("{token}")
    elif not is_loopback_host(settings.host):
        raise InvalidInput(
            f"{version.name} does not support tokens, so anyone who can reach this machine could use it. Start the"
            " worker with --host 127.0.0.1, or use another build."
        )
    return environment, ProcessReadiness(
        kind="http",
        path=command.readiness.path,
        within_s=HTTP_READY_WITHIN_S,
        quiet_within_s=command.readiness.stall_s,
    )


def _fit_engine(
    manifest: Manifest, options: StartOptions, machine: EngineMachine, weights: WeightFacts | None
) -> StartOptions:
    """Only llama.cpp is fitted to the machine and the reserved memory; other engines do that on their own, when
    nothing is passed. For them, the largest context of a model is what they use without being told."""
    if manifest.launcher != LLAMA_CPP_LAUNCHER:
        return msgspec.structs.replace(options, context=None) if options.context == ENGINE_CONTEXT else options
    plan = _plan_llama_cpp(options, machine, weights)
    return msgspec.structs.replace(
        options,
        context=plan.context or ENGINE_CONTEXT,
        slots=plan.slots,
        soft_options={**plan.options, **options.soft_options},
    )


def _plan_llama_cpp(options: StartOptions, machine: EngineMachine, weights: WeightFacts | None) -> LlamaCppPlan:
    return plan_llama_cpp(
        machine,
        weights,
        memory_bytes=options.memory_bytes,
        context=options.context,
        slots=options.slots,
        embeddings=options.embeddings,
    )


def _fit_grpc(
    version: InstalledVersion, start: StartOptions | None, machine: EngineMachine, weights: WeightFacts | None
) -> dict[str, str]:
    """A gRPC backend gets its settings with the call that loads the model, so the frontend is told. LocalAI's frontends
    plan on their own."""
    if start is None or version.manifest.protocol != "localai-grpc":
        return {}
    names = (version.name, version.metadata.alias, version.metadata.meta_backend_for)
    if any(name.removesuffix("-development").endswith(LLAMA_CPP) for name in names):
        fitted = _plan_llama_cpp(start, machine, weights).values
    else:
        fitted = {"threads": machine.cores} if machine.cores is not None else {}
    return label_fitted(fitted)


def _known(soft_options: Mapping[str, str], manifest: Manifest) -> dict[str, str]:
    return {name: value for name, value in soft_options.items() if name in manifest.options}


def _grpc_environment(settings: StartSettings, vulkan: tuple[str, ...]) -> Mapping[str, str | Fill]:
    environment: dict[str, str | Fill] = {}
    if settings.shared_token != "":
        environment[TOKEN_VARIABLE] = settings.shared_token or Fill("{token}")
    if vulkan:
        environment |= {"VK_DRIVER_FILES": ":".join(vulkan), "VK_ICD_FILENAMES": ":".join(vulkan)}
    return environment


def _refuse_fields(options: StartOptions) -> None:
    """Rejects values that contain placeholders, which would be replaced by the port or the token of the process."""
    values = (options.model, options.model_name, *options.options.values(), *options.soft_options.values())
    if any(name in value for name in _FIELDS for value in values):
        raise InvalidInput("a model's path, name or option must not contain {port}, {host} or {token}")


def prepare_places(spec: ProcessSpec, settings: StartSettings, disk: Disk) -> None:
    """Blocking. Creates directories that must exist when the process starts, because its access rights are set then;
    a LocalAI frontend sends model files after the start."""
    own = {os.path.join(place, spec.labels["model"]) for place in settings.files.own_name}
    for path in (*spec.exchange, *(path for path in spec.reads if path in own)):
        disk.make_directory(Path(path), private=False)


def prepare_directory(version: InstalledVersion, disk: Disk) -> tuple[str, ...]:
    """Blocking. Makes LocalAI's launcher executable and returns the Vulkan drivers of the build."""
    if version.manifest.protocol == "localai-grpc" and version.made_by != SYSTEM:
        disk.make_executable(version.path / LOCALAI_LAUNCHER)
    drivers = disk.list(version.path / "vulkan" / "icd.d")
    return tuple(str(path) for path in drivers if path.suffix == ".json")
