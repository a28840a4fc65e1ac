"""Every form of an artifact's location. Text becomes one of these values once, at the edge."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from corral.artifacts.digests import Digest, parse_digest
from corral.artifacts.errors import BadReference

DOCKER_HUB = "registry-1.docker.io"

_REGISTRY_PREFIXES = ("quay.io/", "ghcr.io/", "docker.io/")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")
_HOST = re.compile(r"[A-Za-z0-9.\-]+(?::[0-9]{1,5})?\Z|\[[0-9a-fA-F:.]+\](?::[0-9]{1,5})?\Z")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,62}\Z")
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class OciImage:
    registry: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None
    model_layer: bool = False
    """Whether this is an ollama reference, of which only the layer with the model's weights is used."""

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{'docker.io' if self.registry == DOCKER_HUB else self.registry}/{self.repository}{tag}{digest}"


@dataclass(frozen=True, slots=True)
class OciArchive:
    """A tar file as written by `docker save` and `skopeo copy docker-archive:`."""

    path: Path

    def __str__(self) -> str:
        return f"ocifile://{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OciLayout:
    path: Path
    tag: str | None = None

    def __str__(self) -> str:
        return f"oci-layout://{self.path}" + (f":{self.tag}" if self.tag else "")


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A directory to copy, or a file or archive."""

    path: Path

    def __str__(self) -> str:
        return f"file://{self.path}"


@dataclass(frozen=True, slots=True)
class HttpFile:
    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFace:
    repository: str
    path: str = ""
    """Empty for a snapshot of the whole repository."""
    revision: str = "main"

    def __str__(self) -> str:
        tail = f"/{self.path}" if self.path else ""
        return f"hf://{self.repository}{tail}" + (f"@{self.revision}" if self.revision != "main" else "")


@dataclass(frozen=True, slots=True)
class PypiPackages:
    """Requirements for a private environment, for example `vllm==0.11.0`."""

    requirements: tuple[str, ...]
    index: str = ""
    """The address of an additional index, from which the named packages come if it has them."""

    def __str__(self) -> str:
        return "pypi://" + ",".join(self.requirements) + (f"?index={self.index}" if self.index else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiFile:
    package: str
    version: str
    path: str

    def __str__(self) -> str:
        return f"pypi://{self.package}=={self.version}/{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Object:
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


Reference = OciImage | OciArchive | OciLayout | LocalPath | HttpFile | HuggingFace | PypiPackages | PypiFile | S3Object

FORMS = (
    "registry/repository:tag, oci://, ocifile://, oci-layout://, a directory, file://, https://, github:,"
    " hf://, pypi://, s3:// or ollama://"
)


def parse_reference(text: str) -> Reference:
    """Raises BadReference for an unknown form. Nothing is looked up."""
    if not text or len(text) > 2000 or any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise BadReference("A location must have 1 to 2000 printable characters.")
    scheme, separator, rest = text.partition("://")
    if separator:
        return _with_scheme(scheme.lower(), rest, text)
    if text.startswith("github:"):
        return _github(text.removeprefix("github:"))
    if text.startswith(("hf.co/", "huggingface.co/")):
        return _hugging_face(text.partition("/")[2])
    if text.startswith(_REGISTRY_PREFIXES):
        return parse_image(text)
    if text.startswith(("/", "./", "../", "~")):
        return LocalPath(Path(text).expanduser())
    if "/" in text and _looks_like_image(text):
        return parse_image(text)
    raise BadReference(f"{text[:200]!r} is not a location that Corral can fetch. Use {FORMS}.")


def _with_scheme(scheme: str, rest: str, text: str) -> Reference:
    match scheme:
        case "http" | "https":
            return HttpFile(text)
        case "oci" | "docker":
            return parse_image(rest)
        case "ocifile":
            return OciArchive(Path(rest))
        case "oci-layout":
            path, colon, tag = rest.rpartition(":")
            return OciLayout(path=Path(path), tag=tag) if colon and "/" not in tag else OciLayout(path=Path(rest))
        case "file":
            return LocalPath(Path(rest))
        case "github":
            return _github(rest)
        case "hf" | "huggingface":
            return _hugging_face(rest)
        case "pypi":
            return _pypi(rest)
        case "s3":
            return _s3(rest)
        case "ollama":
            return _ollama(rest)
        case _:
            raise BadReference(f"Scheme {scheme[:40]!r} is not supported. Use {FORMS}.")


def _looks_like_image(text: str) -> bool:
    """LocalAI's mirrors are written `owner/name:tag`, which means Docker Hub."""
    repository = text.partition("@")[0]
    head, _, tail = repository.rpartition("/")
    return bool(head) and bool(tail)


def registry_host(name: str) -> str:
    """Docker Hub's registry has another host name than its references."""
    return DOCKER_HUB if name.lower() in ("docker.io", "index.docker.io") else name.lower()


def parse_image(text: str) -> OciImage:
    name, at, digest_text = text.partition("@")
    digest = parse_digest(digest_text) if at else None
    head, colon, tag_text = name.rpartition(":")
    if not colon or "/" in tag_text:
        head, tag_text = name, ""
    first, slash, rest = head.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, rest
    else:
        registry, repository = "docker.io", head
    registry = registry_host(registry)
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _HOST.match(registry) or not _REPOSITORY.match(repository) or len(repository) > 255:
        raise BadReference(f"{text[:200]!r} is not an image reference; the form is registry/repository:tag.")
    tag = tag_text or (None if digest else "latest")
    if tag is not None and not _TAG.match(tag):
        raise BadReference(f"{tag[:140]!r} is not a tag.")
    return OciImage(registry=registry, repository=repository, tag=tag, digest=digest)


def _github(rest: str) -> HttpFile:
    path, _, branch = rest.partition("@")
    parts = path.strip("/").split("/")
    if len(parts) < 3 or ".." in parts:
        raise BadReference("The form is github:owner/repository/path@branch.")
    owner, repository, *file = parts
    return HttpFile(f"https://raw.githubusercontent.com/{owner}/{repository}/{branch or 'main'}/{'/'.join(file)}")


def _hugging_face(rest: str) -> HuggingFace:
    path, _, revision = rest.partition("@")
    parts = [part for part in path.split("/") if part]
    if len(parts) < 2 or ".." in parts:
        raise BadReference("The form is hf://owner/repository/file@revision.")
    return HuggingFace(repository="/".join(parts[:2]), path="/".join(parts[2:]), revision=revision or "main")


def _pypi(rest: str) -> PypiPackages | PypiFile:
    rest, question, query = rest.partition("?")
    index = _additional_index(query) if question else ""
    head, slash, path = rest.partition("/")
    if slash and path:
        package, equals, version = head.partition("==")
        if not equals or not _PACKAGE.match(package) or ".." in path.split("/") or index:
            raise BadReference("A file inside a package is written pypi://package==version/path.")
        return PypiFile(package=package, version=version, path=path)
    requirements = tuple(part.strip() for part in head.split(",") if part.strip())
    if not requirements:
        raise BadReference("The form is pypi://package==version.")
    return PypiPackages(_joined_specifiers(requirements), index)


def _additional_index(query: str) -> str:
    name, _, address = query.partition("=")
    parts = urlsplit(address)
    if name != "index" or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise BadReference("An additional index is written pypi://package==version?index=https://host/path.")
    return address


def _joined_specifiers(parts: tuple[str, ...]) -> tuple[str, ...]:
    """`a>=1,<2,b` contains two requirements: a part that begins with a comparison belongs to the one before it."""
    joined: list[str] = []
    for part in parts:
        if joined and part[0] in "<>=!~":
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return tuple(joined)


def _s3(rest: str) -> S3Object:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.match(bucket) or not key:
        raise BadReference("The form is s3://bucket/key.")
    return S3Object(bucket=bucket, key=key)


def _ollama(rest: str) -> OciImage:
    name = rest if "/" in rest else f"library/{rest}"
    image = parse_image(f"registry.ollama.ai/{name}")
    return OciImage(registry=image.registry, repository=image.repository, tag=image.tag, model_layer=True)


def names_local_file(text: str) -> bool:
    """Whether a location is a path on the machine that reads it. False for invalid locations."""
    try:
        return isinstance(parse_reference(text), OciArchive | OciLayout | LocalPath)
    except BadReference:
        return False
