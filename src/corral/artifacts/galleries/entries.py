"""Entries of backend and model galleries, as LocalAI writes them and with Corral's additions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from corral.artifacts.content.manifest import Manifest, check_manifest, encode_manifest
from corral.artifacts.digests import parse_digest, sha256_digest
from corral.artifacts.errors import BadGallery, BadManifest, PolicyRefused
from corral.artifacts.references import names_local_file
from corral.artifacts.requests import BackendRequest, ModelFile
from corral.artifacts.yaml import load_yaml
from corral.core.backends.build import BuildRef
from corral.system.json import prepare_type

MAX_ENTRIES = 100_000


class CorralFields(msgspec.Struct, frozen=True, kw_only=True):
    """Corral's additions under the key `corral`. LocalAI ignores unknown keys."""

    manifest: Manifest | None = None
    digest: str = ""
    """The pinned digest of the version."""
    size_bytes: int = 0


class BackendEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One backend. It is a meta backend when it has capabilities and no uri. Unknown keys are ignored."""

    name: str
    alias: str = ""
    uri: str = ""
    mirrors: list[str] = []
    capabilities: dict[str, str] = {}
    version: str = ""
    sha256: str = ""
    description: str = ""
    license: str = ""
    icon: str = ""
    urls: list[str] = []
    tags: list[str] = []
    size: str = ""
    corral: CorralFields | None = None
    gallery: str = ""
    """The gallery's name, set when the gallery is read."""
    gallery_url: str = ""
    from_network: bool = False
    """Set when the gallery is read. Such a gallery must not name files of this machine."""


class ModelVariant(msgspec.Struct, frozen=True):
    model: str


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str = ""
    config_file: dict[str, Any] | str = {}
    overrides: dict[str, Any] = {}
    files: list[ModelFile] = []
    variants: list[ModelVariant] = []
    urls: list[str] = []
    tags: list[str] = []
    description: str = ""
    license: str = ""
    icon: str = ""
    size: str = ""
    backend: str = ""
    gallery: str = ""
    from_network: bool = False
    """The same as for backends."""


class PromptTemplate(msgspec.Struct, frozen=True):
    name: str
    content: str


class BaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """The document at a model entry's `url`. Its `config_file` is a string that contains YAML."""

    name: str = ""
    description: str = ""
    icon: str = ""
    license: str = ""
    urls: list[str] = []
    config_file: str | dict[str, Any] = ""
    files: list[ModelFile] = []
    prompt_templates: list[PromptTemplate] = []


class ResolvedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be installed: its complete configuration and all its files."""

    name: str
    backend: str
    config: dict[str, Any]
    files: list[ModelFile]
    prompt_templates: list[PromptTemplate] = []


def parse_backends(
    content: bytes, *, gallery: str = "", url: str = "", from_network: bool = False
) -> list[BackendEntry]:
    found = [
        msgspec.structs.replace(entry, gallery=gallery, gallery_url=url, from_network=from_network)
        for entry in _parse(content, list[BackendEntry])
    ]
    for entry in found:
        _check_entry(entry)
    return found


def _check_entry(entry: BackendEntry) -> None:
    if not entry.name:
        raise BadGallery("A backend has no name.")
    if entry.corral is not None:
        if entry.corral.manifest is not None:
            try:
                check_manifest(entry.corral.manifest)
            except BadManifest as error:
                raise BadGallery(f"Backend {entry.name}: {error}") from error
        if entry.corral.digest:
            parse_digest(entry.corral.digest)


def parse_models(content: bytes, *, gallery: str = "", from_network: bool = False) -> list[ModelEntry]:
    return [
        msgspec.structs.replace(entry, gallery=gallery, from_network=from_network)
        for entry in _parse(content, list[ModelEntry])
    ]


def parse_base(content: bytes) -> BaseFile:
    base: BaseFile = _parse(content, BaseFile)
    return base


def _parse(content: bytes, kind: Any) -> Any:
    document = load_yaml(content)
    if isinstance(document, list) and len(document) > MAX_ENTRIES:
        raise BadGallery(f"The gallery has more than {MAX_ENTRIES} entries.")
    prepare_type(kind)
    try:
        # Not strict: Go reads an unquoted number as a string where a string belongs, and so do we.
        return msgspec.convert(_stringly(document), kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BadGallery(f"The gallery cannot be read: {error}.") from error


_TEXT_FIELDS = frozenset({"name", "version", "size", "license", "alias", "sha256", "description"})


def _stringly(document: Any) -> Any:
    """Converts numbers in text fields back to text. Absent lists and maps stay absent."""
    if isinstance(document, list):
        return [_stringly_entry(entry) for entry in document]
    return _stringly_entry(document)


def _stringly_entry(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {
        key: str(value) if key in _TEXT_FIELDS and isinstance(value, (int, float)) else value
        for key, value in entry.items()
        if value is not None
    }


def backend_request(
    entry: BackendEntry, *, install_as: str = "", prefer_development: bool = False, allow_development: bool = False
) -> BackendRequest:
    """The install request of a concrete entry: its source, then its mirrors, then, if allowed, the development
    build."""
    uris = [uri for uri in (entry.uri, *entry.mirrors) if uri]
    if entry.from_network:
        refuse_local_files(uris, f"backend {entry.name} of gallery {entry.gallery}")
    development = [uri.replace(":latest-", ":master-") for uri in uris if ":latest-" in uri]
    development += [f"{uri}-development" for uri in development]
    if prefer_development:
        uris = [*development[:1], *uris, *development[1:]]
    elif allow_development:
        uris += development
    corral = entry.corral
    build = BuildRef(
        name=install_as or entry.name,
        alias=entry.alias,
        uris=tuple(dict.fromkeys(uris)),
        digest=parse_digest(corral.digest) if corral and corral.digest else "",
        sha256=_sha256(entry.sha256),
        version=entry.version,
        manifest=encode_manifest(corral.manifest if corral else None),
    )
    return BackendRequest(build=build, gallery_url=entry.gallery_url)


def refuse_local_files(uris: Iterable[str], what: str) -> None:
    """Rejects local paths in a gallery from the network. They would make a node read, store and serve any file it can
    read."""
    for uri in uris:
        if names_local_file(uri):
            raise PolicyRefused(
                f"The {what} refers to the local file {uri[:200]!a}, which a remote gallery must not do."
                " Add the gallery as a local file, or use the file in your own configuration."
            )


def _is_inside(path: str) -> bool:
    """`./name`: below the models directory, like a plain name."""
    return path.startswith("./") and ".." not in path.split("/")


_TEXTS = frozenset(
    {"stopwords", "template", "system_prompt", "description", "usage", "function", "cutstrings", "extract_regex",
     "trimspace", "trimsuffix", "roles", "grammar", "urls", "icon", "license", "tags"}
)  # fmt: skip
"""Fields with text for people or models. It may begin with a slash and is never opened as a file."""


def _uris_of(part: Any) -> Iterator[str]:
    """Every value of a configuration that a node might treat as a location."""
    if isinstance(part, dict):
        for value in (value for key, value in part.items() if key not in _TEXTS):
            yield from _uris_of(value)
    elif isinstance(part, list):
        for value in part:
            yield from _uris_of(value)
    elif isinstance(part, str):
        # An option is written `name:value`.
        yield from (text for text in (part, part.partition(":")[2]) if not _is_inside(text))


def _locations(files: Iterable[ModelFile], *parts: Any) -> Iterator[str]:
    yield from (file.uri for file in files)
    for part in parts:
        yield from _uris_of(part)
        listed = part.get("download_files") if isinstance(part, dict) else None
        for file in listed if isinstance(listed, list) else ():
            if isinstance(file, dict) and isinstance(file.get("uri"), str):
                yield file["uri"]


def _sha256(text: str) -> str:
    return sha256_digest(text.removeprefix("sha256:")) if text else ""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge: maps are merged by key, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        result[key] = merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return result


def resolve_model(entry: ModelEntry, base: BaseFile | None, *, base_from_network: bool = False) -> ResolvedModel:
    """The model's configuration: the base file, then the entry's name, then its overrides. The files of both are
    needed."""
    what = f"model {entry.name} of gallery {entry.gallery}"
    if entry.from_network:
        refuse_local_files(_locations(entry.files, _config_of(entry.config_file), entry.overrides), what)
    if base is not None and base_from_network:
        refuse_local_files(_locations(base.files, _config_of(base.config_file)), what)
    config = merged(_config_of(base.config_file if base else entry.config_file), {"name": entry.name})
    config = merged(config, entry.overrides)
    files = {file.filename: file for file in [*(base.files if base else []), *entry.files]}
    return ResolvedModel(
        name=entry.name,
        backend=str(config.get("backend", "") or entry.backend),
        config=config,
        files=list(files.values()),
        prompt_templates=base.prompt_templates if base else [],
    )


def _config_of(config_file: dict[str, Any] | str) -> dict[str, Any]:
    config = load_yaml(config_file) if isinstance(config_file, str) else config_file
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise BadGallery("A model's config_file is not a map.")
    return config
