"""Reads a role's settings from flags, the environment and the settings file."""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from corral.core.errors import InvalidSetting
from corral.core.validation import describe_problem
from corral.settings.roles import FrontendSettings, RoleSettings, UpSettings, WorkerSettings
from corral.settings.values import LocalAiName, config_home

ROLES = ("up", "frontend", "worker")
"""The tables of a settings file."""

Role = TypeVar("Role", bound=RoleSettings)


def setting_key(field: str) -> str:
    """A field's name without its unit, as flags, variables and the settings file use it."""
    return re.sub(r"_(s|bytes)$", "", field)


def environment_names(field: str, info: FieldInfo) -> list[str]:
    return ["CORRAL_" + setting_key(field).upper(), *_localai_names(info)]


def _localai_names(info: FieldInfo) -> dict[str, LocalAiName]:
    return {item.name: item for item in info.metadata if isinstance(item, LocalAiName)}


_OTHER_NAMES = ("CONFIG", "URL", "API_KEY", "PROGRAM", "DATA_DIR", "ALLOW_SOURCE_BUILDS")
"""Variables (without CORRAL_) that are not settings of a role."""


def find_unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Unknown CORRAL_... variables, each with the most similar known name, if there is one."""
    known = {f"CORRAL_{name}" for name in _OTHER_NAMES}
    for cls in (UpSettings, FrontendSettings, WorkerSettings):
        for field, info in cls.model_fields.items():
            names = environment_names(field, info)
            known |= {*names, *(f"{name}_FILE" for name in names if is_secret(info))}
    unknown = sorted(name for name in environ if name.startswith("CORRAL_") and name not in known)
    return {name: next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), None) for name in unknown}


def is_secret(info: FieldInfo) -> bool:
    return "SecretStr" in str(info.annotation)


def _read_environment(cls: type[RoleSettings], environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for field, info in cls.model_fields.items():
        for name in environment_names(field, info):
            if name in environ:
                localai = _localai_names(info).get(name)
                read = localai.read if localai is not None else None
                found[field] = (read(environ[name]) if read is not None else environ[name], name)
                break
            if is_secret(info) and name + "_FILE" in environ:
                found[field] = _read_secret_file(environ[name + "_FILE"], name + "_FILE")
                break
    return found


def _read_secret_file(path: str, origin: str) -> tuple[str, str]:
    try:
        return Path(path).read_text().strip(), origin
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the file is not text"
        raise InvalidSetting(f"{origin}: cannot read {path}: {why}") from error


def secret_file_flag(field: str) -> str:
    """The flag for a file that contains this secret, which keeps the secret out of the argument list."""
    return "--" + setting_key(field).replace("_", "-") + "-file"


def _read_flags(cls: type[RoleSettings], flags: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for field, info in cls.model_fields.items():
        if flags.get(field) is not None:
            found[field] = (flags[field], "--" + setting_key(field).replace("_", "-"))
        elif is_secret(info) and flags.get(f"{field}_file") is not None:
            found[field] = _read_secret_file(flags[f"{field}_file"], secret_file_flag(field))
    return found


def _read_file(cls: type[RoleSettings], path: Path | None) -> dict[str, tuple[Any, str]]:
    if path is None:
        path = config_home() / "corral.toml"
        if not path.exists():
            return {}
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidSetting(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the settings file {path} is not TOML: {error}") from error
    unknown = [table for table in document if table not in ROLES]
    if unknown:
        raise InvalidSetting(f"{path}: unknown table [{unknown[0]}]; the tables are {', '.join(ROLES)}")
    fields = {setting_key(field): field for field in cls.model_fields}
    found: dict[str, tuple[Any, str]] = {}
    table = document.get(cls.role, {})
    if not isinstance(table, dict):
        raise InvalidSetting(f"{path}: {cls.role} must be a table: a line [{cls.role}] followed by its settings")
    for key, value in table.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidSetting(f"{path}: [{cls.role}] has no setting {key!r}{hint}")
        found[fields[key]] = (value, f"{key} in [{cls.role}] of {path}")
    return found


def load_settings(
    cls: type[Role],
    *,
    flags: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Role:
    """Reads the settings: flags override the environment, which overrides the file and the defaults. Raises
    InvalidSetting, which names each invalid setting."""
    found: dict[str, tuple[Any, str]] = {}
    found.update(_read_file(cls, file))
    found.update(_read_environment(cls, environ))
    found.update(_read_flags(cls, flags))
    try:
        return cls.model_validate({field: value for field, (value, _) in found.items()})
    except ValidationError as error:
        raise InvalidSetting(_describe(error, found)) from None


WORKER_KEEPS = {
    "LOCALAI_MODELS_PATH": "weights",
    "MODELS_PATH": "weights",
    "LOCALAI_BACKENDS_PATH": "backends",
    "BACKENDS_PATH": "backends",
}
"""LocalAI's names without a counterpart: a Corral worker shares files between versions, below its data directory."""


def find_ignored(environ: Mapping[str, str], data_dir: Path) -> list[str]:
    """A sentence for each variable of a LocalAI worker that a Corral worker does not use."""
    return [
        f"{name} is not used: a Corral worker keeps {what} in {data_dir}"
        for name, what in WORKER_KEEPS.items()
        if name in environ
    ]


def _describe(error: ValidationError, found: Mapping[str, tuple[Any, str]]) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        what = describe_problem(problem["type"], context=problem.get("ctx", {}), message=problem["msg"])
        if not problem["loc"]:
            lines.append(what)
            continue
        field = str(problem["loc"][0])
        _, origin = found.get(field, (None, setting_key(field)))
        lines.append(f"{origin}: {what}")
    return "\n".join(lines)
