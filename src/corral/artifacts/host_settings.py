"""Settings of other tools that users expect to apply (pip's index, Hugging Face's endpoint, docker's logins), and the
settings of the role. Called once by a role's main; nothing below reads the environment."""

import configparser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from corral.artifacts.references import registry_host
from corral.artifacts.settings import (
    ArtifactSettings,
    HuggingFaceSettings,
    NetworkPolicy,
    PypiSettings,
    RegistryLogin,
)
from corral.core.errors import InvalidSetting
from corral.settings.roles import SourceSettings
from corral.settings.values import read_logins
from corral.system.s3 import S3Settings

ALLOW_SOURCE_BUILDS = "CORRAL_ALLOW_SOURCE_BUILDS"


def read_pip_settings(environ: Mapping[str, str]) -> PypiSettings:
    """`PIP_INDEX_URL`, else the configuration file that pip would read. Extra indexes are ignored on purpose."""
    address = environ.get("PIP_INDEX_URL", "")
    for path in _pip_files(environ):
        if address:
            break
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(path.read_text(encoding="utf-8"))
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue
        address = next(
            (
                parser.get(section, "index-url")
                for section in ("install", "global")
                if parser.has_option(section, "index-url")
            ),
            "",
        )
    return pypi_settings(address) if address else PypiSettings()


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    home = Path(environ.get("HOME", "/nonexistent"))
    named = environ.get("PIP_CONFIG_FILE")
    return [
        *([Path(named)] if named else []),
        home / ".config" / "pip" / "pip.conf",
        home / ".pip" / "pip.conf",
        Path("/etc/pip.conf"),
    ]


def pypi_settings(address: str) -> PypiSettings:
    """Splits the login from an index address, because the address is logged and stored."""
    parts = urlsplit(address.strip())
    plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
    return PypiSettings(index_url=plain, username=unquote(parts.username or ""), password=unquote(parts.password or ""))


def read_switch(environ: Mapping[str, str], name: str) -> bool:
    """`true` or `false`. Anything else is rejected, because a guess could enable what an operator meant to forbid."""
    text = environ.get(name, "").strip().lower()
    if text not in ("", "true", "false"):
        raise InvalidSetting(f"{name} is {text[:40]!r}; it must be true or false.")
    return text == "true"


def settings_from_environment(data_dir: Path, environ: Mapping[str, str]) -> ArtifactSettings:
    docker = Path(environ.get("DOCKER_CONFIG", Path(environ.get("HOME", "/nonexistent")) / ".docker")) / "config.json"
    return ArtifactSettings(
        data_dir=data_dir,
        docker_config=docker if docker.is_file() else None,
        pypi=replace(read_pip_settings(environ), allow_source_builds=read_switch(environ, ALLOW_SOURCE_BUILDS)),
        hugging_face=HuggingFaceSettings(
            endpoint=environ.get("HF_ENDPOINT", "") or HuggingFaceSettings().endpoint, token=environ.get("HF_TOKEN", "")
        ),
        s3=S3Settings(
            endpoint=environ.get("AWS_ENDPOINT_URL_S3", "") or environ.get("AWS_ENDPOINT_URL", ""),
            region=environ.get("AWS_REGION", "") or environ.get("AWS_DEFAULT_REGION", "") or "us-east-1",
            access_key=environ.get("AWS_ACCESS_KEY_ID", ""),
            secret_key=environ.get("AWS_SECRET_ACCESS_KEY", ""),
            session_token=environ.get("AWS_SESSION_TOKEN", ""),
        ),
    )


def with_sources(found: ArtifactSettings, settings: SourceSettings) -> ArtifactSettings:
    """The settings with the hosts that the operator configured."""
    return replace(
        found,
        network=NetworkPolicy(
            trusted_hosts=frozenset(host.lower() for host in settings.trusted_hosts),
            plain_http_hosts=frozenset(host.lower() for host in settings.plain_http_hosts),
        ),
        registry_mirrors={
            registry_host(host): tuple(map(registry_host, mirrors))
            for host, mirrors in settings.registry_mirrors.items()
        },
        registry_logins={
            registry_host(host): RegistryLogin(username=name, password=password)
            for host, (name, password) in read_logins(settings.registry_logins).items()
        },
        require_digest=settings.require_digest,
        pypi=replace(found.pypi, pythons=settings.pythons),
    )
