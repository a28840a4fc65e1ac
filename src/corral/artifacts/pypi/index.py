"""Packages from an index, as wheels with hashes from the index. Installing runs no code of a package, unless an
operator allows building source packages."""

import re
from base64 import b64encode
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob, FileSource
from corral.artifacts.content.http_source import HttpSource
from corral.artifacts.content.pieces import MemberPiece, ResolvedArtifact, WheelPiece
from corral.artifacts.digests import Digest, digest_of, sha256_digest
from corral.artifacts.disk.staging import Staging, remove_tree
from corral.artifacts.errors import (
    ArtifactError,
    BadReference,
    Cancelled,
    NoPlatformFits,
    PolicyRefused,
    SourceRejected,
    SourceUnavailable,
)
from corral.artifacts.net.client import Outbound
from corral.artifacts.pypi.interpreters import Interpreter, own_interpreter
from corral.artifacts.pypi.resolver import pick_wheels
from corral.artifacts.pypi.source_builds import BuiltWheel, Source, SourceBuilds
from corral.artifacts.references import PypiFile, PypiPackages
from corral.artifacts.settings import PypiSettings
from corral.system.json import decode_json

INDEX_BYTES = 64 << 20
AT_ONCE = 8
VERSIONS_SHOWN = 5
SOURCE_ENDINGS = (".tar.gz", ".zip")
HOW_TO_ALLOW = "CORRAL_ALLOW_SOURCE_BUILDS=true or `--allow-source-builds` allows building them"
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel of an index, or a source package to build one from, with its hash."""

    package: str
    version: Version
    filename: str
    url: str
    sha256: Digest
    rank: int
    """How well it fits the interpreter; lower is better."""
    requires_python: str = ""
    yanked: bool = False
    has_metadata: bool = False
    size: int | None = None
    from_source: bool = False
    """Whether this is a source package: address, hash and size are those of the source."""


class _JsonFile(msgspec.Struct, rename="kebab"):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    requires_python: str | None = None
    yanked: bool | str = False
    core_metadata: bool | dict[str, str] = False
    size: int | None = None


class _JsonProject(msgspec.Struct):
    files: list[_JsonFile]


class _Links(HTMLParser):
    """The anchors of a simple-index page."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[_JsonFile] = []
        self._open: dict[str, str | None] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._open = dict(attrs)

    def handle_data(self, data: str) -> None:
        if self._open is None or not self._open.get("href"):
            return
        href = self._open["href"] or ""
        address, _, fragment = href.partition("#")
        algorithm, _, digits = fragment.partition("=")
        self.files.append(
            _JsonFile(
                filename=unquote(urlsplit(address).path.rpartition("/")[2]),
                url=address,
                hashes={algorithm: digits} if digits else {},
                requires_python=self._open.get("data-requires-python"),
                yanked="data-yanked" in self._open,
                core_metadata="data-core-metadata" in self._open or "data-dist-info-metadata" in self._open,
            )
        )
        self._open = None


@dataclass(frozen=True, slots=True)
class _Page:
    """A project of an index."""

    url: str
    files: list[_JsonFile]


@dataclass(slots=True)
class PypiIndex:
    """The packages for one interpreter."""

    outbound: Outbound
    settings: PypiSettings
    builds: SourceBuilds
    staging: Staging
    additional_url: str = ""
    """A second index, from which the requested packages come if it has them."""
    python: Interpreter = field(default_factory=own_interpreter)
    _pages: dict[str, _Page] = field(default_factory=dict)
    _requested: set[str] = field(default_factory=set)
    _projects: dict[str, list[Wheel]] = field(default_factory=dict)
    _unusable: dict[str, str] = field(default_factory=dict)
    _sources_refused: dict[str, set[Version]] = field(default_factory=dict)
    _built: dict[Digest, BuiltWheel] = field(default_factory=dict)
    _scratch: Path | None = None

    def headers(self) -> dict[str, str]:
        if not self.settings.username:
            return {}
        login = f"{self.settings.username}:{self.settings.password}".encode()
        return {"Authorization": f"Basic {b64encode(login).decode()}"}

    def headers_for(self, url: str) -> dict[str, str]:
        """The login is sent to the index's own host only; files are often on another."""
        return self.headers() if urlsplit(url).netloc == urlsplit(self.settings.index_url).netloc else {}

    def wheels(self, package: str, cancel: CancelToken) -> list[Wheel]:
        """Every wheel of `package` that the interpreter can use, newest version first, best wheel first within a
        version. Source packages, where allowed, come after the wheels of their version."""
        name = canonicalize_name(package)
        if name not in self._projects:
            self._projects[name] = self._read_project(name, cancel)
        return self._projects[name]

    def read_ahead(self, packages: Iterable[str], cancel: CancelToken) -> None:
        """Reads several packages at the same time: a large engine has two hundred, and each takes a round trip."""
        names = {canonicalize_name(package) for package in packages} - self._projects.keys()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="index") as pool:
            for asked in [pool.submit(self.wheels, name, cancel) for name in names]:
                asked.result()

    def why_none(self, package: str, wanted: SpecifierSet) -> str:
        name = canonicalize_name(package)
        why = self._why_unusable(name, wanted)
        if any(wanted.contains(version, prereleases=True) for version in self._sources_refused.get(name, ())):
            return f"{why}; there are source packages, and {HOW_TO_ALLOW}"
        return why

    def _why_unusable(self, name: str, wanted: SpecifierSet) -> str:
        page = self._pages.get(name)
        there = {found for file in page.files if (found := _version_of(file.filename))} if page is not None else set()
        if there and not any(wanted.contains(version, prereleases=True) for version in there):
            newest = ", ".join(str(version) for version in sorted(there, reverse=True)[:VERSIONS_SHOWN])
            return f"the index has no such version; the newest there: {newest}"
        return self._unusable.get(name, "the index has no wheel for this platform")

    def for_python(self, python: Interpreter) -> "PypiIndex":
        """The same index for another interpreter. What was read is not read again."""
        return PypiIndex(
            self.outbound,
            self.settings,
            self.builds.for_python(python),
            self.staging,
            additional_url=self.additional_url,
            python=python,
            _pages=self._pages,
        )

    def supports(self, requirements: Iterable[Requirement], python: Interpreter, cancel: CancelToken) -> bool:
        """Whether the index has a file of each requirement for this interpreter, whatever those require in turn."""
        index = self.for_python(python)
        index._requested |= self._requested
        return all(
            any(one.specifier.contains(wheel.version, prereleases=True) for wheel in index.wheels(one.name, cancel))
            for one in requirements
        )

    def _read_page(self, name: str, cancel: CancelToken) -> _Page:
        """The project in the one index that it comes from. Taking the best of both would let a package of that name
        in the other index replace it."""
        if name in self._pages:
            return self._pages[name]
        indexes = [self.settings.index_url]
        if self.additional_url:
            indexes.insert(0 if name in self._requested else 1, self.additional_url)
        for position, address in enumerate(indexes):
            url = f"{address.rstrip('/')}/{name}/"
            headers = {**self.headers_for(url), "Accept": ACCEPT}
            try:
                response, body = self.outbound.fetch(url, cancel=cancel, limit=INDEX_BYTES, headers=headers)
            except SourceRejected as error:
                if error.status != 404 or position == len(indexes) - 1:
                    raise
                continue
            files = _read_files(body, response.headers.get("content-type", ""))
            self._pages[name] = _Page(response.url, files)
            break
        return self._pages[name]

    def _read_project(self, name: str, cancel: CancelToken) -> list[Wheel]:
        page = self._read_page(name, cancel)
        found: list[Wheel] = []
        skipped: set[str] = set()
        for file in page.files:
            url = urljoin(page.url, file.url)
            if file.filename.endswith(SOURCE_ENDINGS):
                wheel = _buildable(name, file, url, self.python)
            else:
                wheel = _usable(name, file, url, self.python)
            if isinstance(wheel, Wheel) and wheel.from_source and not self.settings.allow_source_builds:
                self._sources_refused.setdefault(name, set()).add(wheel.version)
                skipped.add("only source packages, which would have to be built")
            elif isinstance(wheel, Wheel):
                found.append(wheel)
            elif wheel:
                skipped.add(wheel)
        if not found and skipped:
            self._unusable[name] = "; ".join(sorted(skipped))
        found.sort(key=lambda wheel: (wheel.version, -wheel.rank), reverse=True)
        return found

    def blob(self, wheel: Wheel) -> Blob:
        return Blob(
            name=wheel.filename,
            digest=wheel.sha256,
            size=wheel.size,
            sources=(HttpSource(outbound=self.outbound, url=wheel.url, headers=lambda: self.headers_for(wheel.url)),),
        )

    def sized(self, wheel: Wheel, cancel: CancelToken) -> Wheel:
        """Adds the size, which an HTML index does not state, so that disk space and progress are known in advance."""
        if wheel.size is not None or wheel.from_source:
            return wheel
        headers = self.headers_for(wheel.url)
        response, _ = self.outbound.fetch(wheel.url, cancel=cancel, limit=0, method="HEAD", headers=headers)
        length = response.headers.get("content-length", "")
        return replace(wheel, size=int(length)) if length.isdigit() else wheel

    def resolve_file(self, reference: PypiFile, cancel: CancelToken) -> ResolvedArtifact:
        """One file inside a wheel. Any wheel of that version that fits this platform will do."""
        wanted = Version(reference.version)
        fitting = [
            wheel
            for wheel in self.wheels(reference.package, cancel)
            if wheel.version == wanted and not wheel.from_source
        ]
        if not fitting:
            why = self._why_unusable(canonicalize_name(reference.package), SpecifierSet(f"=={wanted}"))
            raise NoPlatformFits(f"{reference.package} {reference.version}: {why}.")
        wheel = self.sized(fitting[0], cancel)
        return ResolvedArtifact(
            digest=wheel.sha256,
            source=str(reference),
            pieces=(MemberPiece(blob=self.blob(wheel), path=reference.path),),
            verified_by="index hash",
            version=str(wheel.version),
        )

    def resolve_environment(self, requirements: tuple[str, ...], cancel: CancelToken) -> ResolvedArtifact:
        try:
            parsed = [Requirement(text) for text in requirements]
        except InvalidRequirement as error:
            raise BadReference(f"{', '.join(requirements)[:200]!r} is not a requirement: {error}.") from error
        if any(requirement.url for requirement in parsed):
            raise PolicyRefused("A requirement must not contain an address; packages come from the configured index.")
        self._requested = {canonicalize_name(requirement.name) for requirement in parsed}
        try:
            return self._resolve(requirements, parsed, cancel)
        except BaseException as error:  # whatever ended it, its builds are not kept
            self._discard_built(error)
            raise

    def _resolve(
        self, requirements: tuple[str, ...], parsed: list[Requirement], cancel: CancelToken
    ) -> ResolvedArtifact:
        chosen = pick_wheels(self, parsed, cancel)
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="index") as pool:
            wheels = list(pool.map(lambda wheel: self.sized(wheel, cancel), chosen))
        # Two builds of one source seldom agree in every byte. They are one version all the same, so the version is
        # named after the source; the lock tells both.
        named = sorted(f"{wheel.package}=={wheel.version} {_origin(wheel)}" for wheel in wheels)
        first = canonicalize_name(parsed[0].name)
        return ResolvedArtifact(
            digest=digest_of("\n".join((f"python {self.python.version}", *named)).encode()),
            source=str(PypiPackages(requirements, self.additional_url)),
            pieces=tuple(
                WheelPiece(
                    blob=self._wheel_blob(wheel, cancel),
                    package=wheel.package,
                    version=str(wheel.version),
                    python=self.python.version,
                )
                for wheel in wheels
            ),
            verified_by="; ".join(["index hashes", *(_built_from(wheel) for wheel in wheels if wheel.from_source)]),
            version=next(str(wheel.version) for wheel in wheels if wheel.package == first),
            python_lock=tuple(sorted(self._lock_line(wheel, cancel) for wheel in wheels)),
            python=self.python.version,
            interpreter=self.python.path,
            scratch=self._scratch,
        )

    def built(self, wheel: Wheel, cancel: CancelToken) -> BuiltWheel:
        """The wheel of a source package, built if necessary."""
        if wheel.sha256 not in self._built:
            if self._scratch is None:
                self._scratch = self.staging.new_path()
            self._built[wheel.sha256] = self.builds.build(self._source(wheel), self._scratch, cancel)
        return self._built[wheel.sha256]

    def _source(self, wheel: Wheel) -> Source:
        return Source(
            package=wheel.package,
            version=wheel.version,
            filename=wheel.filename,
            digest=wheel.sha256,
            blob=self.blob(wheel),
        )

    def _wheel_blob(self, wheel: Wheel, cancel: CancelToken) -> Blob:
        if not wheel.from_source:
            return self.blob(wheel)
        built = self.built(wheel, cancel)
        return Blob(name=built.filename, digest=built.digest, size=built.size, sources=(FileSource(built.path),))

    def _lock_line(self, wheel: Wheel, cancel: CancelToken) -> str:
        if not wheel.from_source:
            return f"{wheel.package}=={wheel.version} {wheel.sha256}"
        return f"{wheel.package}=={wheel.version} {self.built(wheel, cancel).digest} {_origin(wheel)}"

    def _discard_built(self, error: BaseException) -> None:
        """Built wheels are kept only if a retry is likely to need them."""
        if self._scratch is not None:
            remove_tree(self._scratch)
        wanted_again = isinstance(error, SourceUnavailable) or (isinstance(error, Cancelled) and error.keep_partials)
        if isinstance(error, ArtifactError) and not wanted_again:
            sources = {wheel.sha256: wheel for wheels in self._projects.values() for wheel in wheels}
            for digest, built in self._built.items():
                self.builds.forget(self._source(sources[digest]), built)


def _origin(wheel: Wheel) -> str:
    return f"built from source package {wheel.sha256}" if wheel.from_source else str(wheel.sha256)


def _built_from(wheel: Wheel) -> str:
    return f"{wheel.package} {wheel.version} {_origin(wheel)}"


def _read_files(body: bytes, content_type: str) -> list[_JsonFile]:
    if "json" in content_type:
        try:
            return decode_json(body, _JsonProject).files
        except msgspec.DecodeError as error:
            raise SourceUnavailable(f"The package index cannot be read: {error}.") from error
    page = _Links()
    page.feed(body.decode("utf-8", "replace"))
    return page.files


def _usable(name: str, file: _JsonFile, url: str, python: Interpreter) -> Wheel | str | None:
    """The wheel; or why it cannot be used; or None if the file is not a wheel."""
    try:
        package, version, _, tags = parse_wheel_filename(file.filename)
    except InvalidWheelFilename:
        return None
    if canonicalize_name(package) != name:
        return None
    if not re.fullmatch(r"[0-9a-fA-F]{64}", file.hashes.get("sha256", "")):
        return "wheels without a SHA-256 hash, which are not installed"
    fitting = [python.ranks[tag] for tag in tags if tag in python.ranks]
    if not fitting:
        return "wheels for other machines or Python versions"
    if not _is_for(file, python):
        return f"wheels for Python versions other than {python.version}"
    return Wheel(
        package=name,
        version=version,
        filename=file.filename,
        url=url,
        sha256=sha256_digest(file.hashes["sha256"]),
        rank=min(fitting),
        requires_python=file.requires_python or "",
        yanked=bool(file.yanked),
        has_metadata=bool(file.core_metadata),
        size=file.size,
    )


def _version_of(filename: str) -> Version | None:
    """None for a file that is no package."""
    try:
        if filename.endswith(SOURCE_ENDINGS):
            return parse_sdist_filename(filename)[1]
        return parse_wheel_filename(filename)[1]
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None


def _is_for(file: _JsonFile, python: Interpreter) -> bool:
    try:
        return not file.requires_python or python.version in SpecifierSet(file.requires_python)
    except InvalidSpecifier:
        return False


def _buildable(name: str, file: _JsonFile, url: str, python: Interpreter) -> Wheel | str | None:
    """The source package as a candidate, ranked after every wheel; or why it cannot be used; or None."""
    try:
        package, version = parse_sdist_filename(file.filename)
    except InvalidSdistFilename:
        return None
    if package != name:
        return None
    if not re.fullmatch(r"[0-9a-fA-F]{64}", file.hashes.get("sha256", "")):
        return "source packages without a SHA-256 hash, which are not built"
    if not _is_for(file, python):
        return f"source packages for Python versions other than {python.version}"
    return Wheel(
        package=name,
        version=version,
        filename=file.filename,
        url=url,
        sha256=sha256_digest(file.hashes["sha256"]),
        rank=len(python.ranks),
        requires_python=file.requires_python or "",
        yanked=bool(file.yanked),
        size=file.size,
        from_source=True,
    )
