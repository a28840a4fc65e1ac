"""Command-line flags made from a settings class, which is the one source of flags, help, environment and file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic_core import PydanticUndefined

from corral.core.backends.gallery_addresses import GalleryAddress
from corral.core.durations import format_duration
from corral.core.sizes import format_bytes
from corral.settings.reading import (
    environment_names,
    find_unknown_variables,
    is_secret,
    load_settings,
    secret_file_flag,
    setting_key,
)
from corral.settings.roles import RoleSettings

Command = TypeVar("Command", bound=Callable[..., Any])
Role = TypeVar("Role", bound=RoleSettings)


def settings_options(cls: type[RoleSettings]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for field, info in reversed(cls.model_fields.items()):
            flag = "--" + setting_key(field).replace("_", "-")
            names = ", ".join(environment_names(field, info))
            default = info.get_default(call_default_factory=True, validated_data={})
            shown = "" if default in (None, PydanticUndefined, "") else f" Default: {_show(default, field)}."
            help_text = f"{info.description}{shown} [{names}]"
            if info.annotation is bool:
                declaration = f"{flag}/--no-{flag.removeprefix('--')}"
                command = click.option(declaration, field, default=None, help=help_text)(command)
            else:
                if is_secret(info):
                    file_help = f"Read {flag} from this file instead of the argument list."
                    command = click.option(
                        secret_file_flag(field), f"{field}_file", default=None, help=file_help, metavar="PATH"
                    )(command)
                command = click.option(flag, field, default=None, help=help_text, metavar="VALUE")(command)
        return click.option(
            "--config", type=click.Path(path_type=Path), default=None, help="Settings file (TOML). [CORRAL_CONFIG]"
        )(command)

    return decorate


def _show(default: Any, field: str) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ", ".join(_show(part, "") for part in default) or "none"
    if isinstance(default, dict):
        return ",".join(f"{key}={value}" for key, value in default.items()) or "none"
    if isinstance(default, Path):
        return str(default).replace(str(Path.home()), "~", 1)
    if isinstance(default, GalleryAddress):
        return f"{default.name}={default.url}"
    if field.endswith("_bytes"):
        return format_bytes(default)
    return format_duration(default) if field.endswith("_s") else str(default)


def read_settings(cls: type[Role], flags: dict[str, Any]) -> Role:
    for name, near in find_unknown_variables(os.environ).items():
        hint = f"; did you mean {near}?" if near else ""
        click.echo(f"corral: ignoring the unknown environment variable {name}{hint}", err=True)
    return load_settings(cls, flags=flags, file=settings_file(flags.pop("config", None)))


def settings_file(given: Path | None = None) -> Path | None:
    named = given or os.environ.get("CORRAL_CONFIG")
    return Path(named) if named else None
