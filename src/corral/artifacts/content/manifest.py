"""How an installed backend is started. Stored with the version, so that the worker's supervisor needs nothing else.

Two kinds: LocalAI's `run.sh`, which takes `--addr` and speaks gRPC, and Corral's own description of a server that
speaks the OpenAI API. Values from people reach a process as single arguments, never through a shell, and only for
options the manifest lists.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from corral.artifacts.errors import BadManifest
from corral.system.json import decode_json

Protocol = Literal["openai", "localai-grpc"]
Continuation = Literal["assistant-prefill", "continue-final-message"]

DESCRIPTIONS = ("corral.json", "corral.yaml")
"""Files at the top of an artifact that hold its manifest."""
LOCALAI_LAUNCHER = "run.sh"

_FIELD = re.compile(r"\{([a-z_]+)\}")
_FIELDS = frozenset({"python", "bin", "dir", "host", "port", "model", "context", "slots", "value", "name"})
_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_ENDPOINT = re.compile(r"/[a-z0-9_/]{1,63}\Z")
_TRIAL_FIELDS = frozenset({"python", "bin", "dir"})
ENDPOINTS_MOST = 16
TRIAL_MOST_S = 600.0
# Names that change which code a process loads; a gallery has no business setting them.
_FORBIDDEN_ENVIRONMENT = re.compile(r"(LD_|DYLD_|PYTHONPATH|PYTHONSTARTUP|PYTHONHOME|PATH\Z|BASH_ENV|ENV\Z|IFS\Z)")


class ReadinessProbe(msgspec.Struct, frozen=True):
    path: str = "/health"
    """A path that returns 2xx once the model can serve."""
    stall_s: float = 600.0
    """How long a start may go without progress."""


class Trial(msgspec.Struct, frozen=True):
    """How a version is started once where no model uses it: by a command, or with a small model of its own."""

    command: tuple[str, ...] = ()
    """Must end with exit code 0, as `{bin}/engine --version` does; with `{python}`, `{bin}` and `{dir}` filled in."""
    model: str = ""
    """Weights that come with the backend, below `{dir}`: it is started with them as with every model."""
    within_s: float = 120.0


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    protocol: Protocol
    start: tuple[str, ...]
    """The command, with `{python}`, `{bin}`, `{dir}`, `{host}`, `{port}`, `{model}` filled in."""
    readiness: ReadinessProbe = ReadinessProbe()
    context: tuple[str, ...] = ()
    """Added when a context size is set, with `{context}`."""
    slots: tuple[str, ...] = ()
    """Added when parallel slots are set, with `{slots}`."""
    embeddings: tuple[str, ...] = ()
    """Added for a model that serves embeddings."""
    served_name: tuple[str, ...] = ()
    """Added to give the engine the model's public name, with `{name}`."""
    options: dict[str, tuple[str, ...]] = {}
    """Every option that a model may set, with `{value}`. Others are rejected."""
    environment: dict[str, str] = {}
    endpoints: tuple[str, ...] = ()
    """Paths of client APIs besides OpenAI's chat completions that the server has itself, such as `/v1/messages`.
    Requests for them reach it unchanged; the gateway translates those of servers that do not list them."""
    continuation: Continuation | None = None
    """How the server continues an answer that another replica began: `assistant-prefill` (the last message, of the
    assistant, is continued) or `continue-final-message` (the same, with vLLM's fields). None: it cannot."""
    token_env: str = ""
    """The variable through which the process gets the token that clients must send."""
    launcher: str = ""
    """A launcher that Corral places beside the engine, when the engine has no server command of its own."""
    trial: Trial | None = None
    """How it is tested after an upgrade where no model uses it. Backends that speak gRPC need none: they are started
    without a model, and their health check must answer."""


LOCALAI_RUN = Manifest(protocol="localai-grpc", start=(f"{{dir}}/{LOCALAI_LAUNCHER}", "--addr", "{host}:{port}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    host: str
    port: int | None
    """None leaves `{port}` in the command, for a supervisor that knows the port only when it starts the process."""
    model: str
    model_name: str = ""
    context: int | None = None
    slots: int | None = None
    embeddings: bool = False
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    argv: tuple[str, ...]
    environment: dict[str, str]
    working_dir: Path
    token_env: str
    readiness: ReadinessProbe


def check_manifest(manifest: Manifest) -> Manifest:
    """Rejects an invalid description when it is read, not when a model is loaded."""
    if not manifest.start:
        raise BadManifest("A backend's start command is empty.")
    groups = [manifest.start, manifest.context, manifest.slots, manifest.embeddings, manifest.served_name]
    for argument in [argument for group in [*groups, *manifest.options.values()] for argument in group]:
        unknown = set(_FIELD.findall(argument)) - _FIELDS
        if unknown:
            raise BadManifest(f"Argument {argument!r} uses the unknown placeholders {', '.join(sorted(unknown))}.")
    for name in [*manifest.environment, *filter(None, [manifest.token_env])]:
        if not _ENVIRONMENT_NAME.match(name) or _FORBIDDEN_ENVIRONMENT.match(name):
            raise BadManifest(f"A gallery must not set the variable {name!r} for a backend.")
    if not manifest.readiness.path.startswith("/"):
        raise BadManifest("The readiness path must begin with a slash.")
    if len(manifest.endpoints) > ENDPOINTS_MOST or not all(map(_ENDPOINT.match, manifest.endpoints)):
        raise BadManifest(f"`endpoints` must be a list of at most {ENDPOINTS_MOST} paths such as /v1/messages.")
    if manifest.launcher and not re.fullmatch(r"[a-z][a-z0-9_]*", manifest.launcher):
        raise BadManifest(f"{manifest.launcher!r} is not one of Corral's launchers.")
    if manifest.trial is not None:
        _check_trial(manifest.trial, manifest.protocol)
    return manifest


def _check_trial(trial: Trial, protocol: Protocol) -> None:
    given = bool(trial.command) + bool(trial.model)
    if protocol == "openai" and given != 1:
        raise BadManifest("A backend's `trial` needs either a `command` or a `model`.")
    if protocol == "localai-grpc" and given:
        raise BadManifest("A gRPC backend is tested by its health check: its `trial` has only `within_s`.")
    for argument in (*trial.command, trial.model):
        unknown = set(_FIELD.findall(argument)) - _TRIAL_FIELDS
        if unknown:
            raise BadManifest(f"The trial's {argument!r} uses the unknown placeholders {', '.join(sorted(unknown))}.")
    if trial.model and (not trial.model.startswith("{dir}/") or ".." in trial.model.split("/")):
        raise BadManifest("The model of a `trial` must be a file of the backend, as {dir}/tiny.gguf.")
    if not 1 <= trial.within_s <= TRIAL_MOST_S:
        raise BadManifest(f"`within_s` of a `trial` must be between 1 and {TRIAL_MOST_S:.0f}.")


def encode_manifest(manifest: Manifest | None) -> str:
    """JSON text for a `BuildRef`; empty for None."""
    # NUL characters are replaced: neither a database nor a process's arguments can hold them.
    return msgspec.json.encode(manifest).decode().replace("\\u0000", "\\ufffd") if manifest is not None else ""


def decode_manifest(text: str) -> Manifest:
    """Raises BadManifest."""
    try:
        return decode_json(text, Manifest)
    except msgspec.DecodeError as error:
        raise BadManifest(f"The manifest cannot be read: {error}.") from None


def plan_start(manifest: Manifest, version_dir: Path, request: StartRequest) -> StartCommand:
    """The exact command for one process. Pure: it reads nothing and starts nothing."""
    values = {
        **_places(version_dir),
        "host": request.host,
        "port": "{port}" if request.port is None else str(request.port),
        "model": request.model,
        "name": request.model_name,
    }
    argv = _filled(manifest.start, values)
    if request.context is not None:
        argv += _filled(manifest.context, {**values, "context": str(request.context)})
    if request.slots is not None:
        argv += _filled(manifest.slots, {**values, "slots": str(request.slots)})
    if request.model_name:
        argv += _filled(manifest.served_name, values)
    if request.embeddings:
        argv += _filled(manifest.embeddings, values)
    for option, value in request.options:
        argv += _option(manifest, option, value, values)
    return StartCommand(
        argv=argv,
        environment=dict(manifest.environment),
        working_dir=version_dir,
        token_env=manifest.token_env,
        readiness=manifest.readiness,
    )


def _places(version_dir: Path) -> dict[str, str]:
    return {
        "dir": str(version_dir),
        "bin": str(version_dir / "bin"),
        "python": str(version_dir / "bin" / "python"),
    }


def fill_trial(trial: Trial, version_dir: Path) -> Trial:
    places = _places(version_dir)
    [model] = _filled((trial.model,), places)
    return msgspec.structs.replace(trial, command=_filled(trial.command, places), model=model)


def _option(manifest: Manifest, option: str, value: str, values: Mapping[str, str]) -> tuple[str, ...]:
    template = manifest.options.get(option)
    if template is None:
        known = ", ".join(sorted(manifest.options)) or "none"
        raise BadManifest(f"This backend has no option {option[:80]!r}; its options are {known}.")
    if "\0" in value or len(value) > 4096:
        raise BadManifest(f"Option {option} has a value with a NUL byte, which no process accepts.")
    return _filled(template, {**values, "value": value})


def _filled(template: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Replaces each field once; a value that itself looks like a field stays as it is."""

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise BadManifest(f"The start command uses {{{name}}}, which has no value.")
        return values[name]

    return tuple(_FIELD.sub(value_of, argument) for argument in template)
