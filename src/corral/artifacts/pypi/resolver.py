"""Finds a set of wheels that satisfies a set of requirements. The search is resolvelib's, as in pip."""

import email.parser
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

import resolvelib
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import NoPlatformFits, SourceUnavailable, UnsafeArchive
from corral.artifacts.net.client import Outbound
from corral.artifacts.pypi.interpreters import Interpreter
from corral.artifacts.pypi.source_builds import BuiltWheel

if TYPE_CHECKING:
    from corral.artifacts.pypi.index import Wheel

METADATA_BYTES = 8 << 20
ROUNDS = 20_000
BLOCK_BYTES = 64 * 1024


class PackageIndex(Protocol):
    """The part of a package index that the search uses."""

    outbound: Outbound
    python: Interpreter

    def wheels(self, package: str, cancel: CancelToken) -> "list[Wheel]": ...
    def read_ahead(self, packages: Iterable[str], cancel: CancelToken) -> None: ...
    def why_none(self, package: str, wanted: SpecifierSet) -> str: ...
    def headers_for(self, url: str) -> dict[str, str]: ...
    def built(self, wheel: "Wheel", cancel: CancelToken) -> BuiltWheel: ...


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A wheel with the requested extras."""

    wheel: "Wheel"
    extras: frozenset[str]


def pick_wheels(index: PackageIndex, requirements: Sequence[Requirement], cancel: CancelToken) -> "list[Wheel]":
    """One wheel per package, in a stable order. Raises when no set satisfies all requirements."""
    provider = _Provider(index, cancel)
    applicable = [requirement for requirement in requirements if _applies(requirement, frozenset(), index.python)]
    try:
        result = resolvelib.Resolver(provider, resolvelib.BaseReporter()).resolve(applicable, max_rounds=ROUNDS)
    except resolvelib.ResolutionImpossible as error:
        raise NoPlatformFits(_explain(index, error.causes)) from error
    except resolvelib.ResolutionTooDeep as error:
        raise NoPlatformFits(
            "No set of versions was found that satisfies all requirements; pin some of them."
        ) from error
    chosen = {candidate.wheel.package: candidate.wheel for candidate in result.mapping.values()}
    return [chosen[package] for package in sorted(chosen)]


def _explain(index: PackageIndex, causes: Iterable[Any]) -> str:
    wanted = {canonicalize_name(cause.requirement.name): cause for cause in causes}
    reasons = []
    for name, cause in sorted(wanted.items()):
        by = f", required by {cause.parent.wheel.package} {cause.parent.wheel.version}" if cause.parent else ""
        reasons.append(f"{cause.requirement}{by} ({index.why_none(name, cause.requirement.specifier)})")
    return "No wheels satisfy these requirements together: " + "; ".join(reasons) + "."


def _applies(requirement: Requirement, extras: frozenset[str], python: Interpreter) -> bool:
    if requirement.marker is None:
        return True
    environment = python.markers()
    return any(requirement.marker.evaluate({**environment, "extra": extra}) for extra in (extras or {""}))


@dataclass(slots=True)
class _Provider(resolvelib.AbstractProvider):  # type: ignore[type-arg]
    index: PackageIndex
    cancel: CancelToken
    _dependencies: dict[tuple[str, frozenset[str]], list[Requirement]] = field(default_factory=dict)

    def identify(self, requirement_or_candidate: Requirement | _Candidate) -> tuple[str, frozenset[str]]:
        if isinstance(requirement_or_candidate, _Candidate):
            return requirement_or_candidate.wheel.package, requirement_or_candidate.extras
        return canonicalize_name(requirement_or_candidate.name), frozenset(requirement_or_candidate.extras)

    def get_preference(
        self,
        identifier: Any,
        resolutions: Any,
        candidates: Mapping[Any, Iterator[Any]],
        information: Any,
        backtrack_causes: Any,
    ) -> tuple[bool, int]:
        """Packages with few candidates first: they fail early."""
        pinned = any(
            specifier.operator in ("==", "===")
            for item in information[identifier]
            for specifier in item.requirement.specifier
        )
        return not pinned, sum(1 for _ in candidates[identifier])

    def find_matches(
        self,
        identifier: tuple[str, frozenset[str]],
        requirements: Mapping[Any, Iterator[Requirement]],
        incompatibilities: Any,
    ) -> list[_Candidate]:
        self.cancel.check()
        package, extras = identifier
        specifiers = SpecifierSet()
        for requirement in requirements[identifier]:
            specifiers &= requirement.specifier
        excluded = {candidate.wheel.version for candidate in incompatibilities[identifier]}
        return [
            _Candidate(wheel, extras) for wheel in self._allowed(package, specifiers) if wheel.version not in excluded
        ]

    def _allowed(self, package: str, specifiers: SpecifierSet) -> "list[Wheel]":
        offered = self.index.wheels(package, self.cancel)
        pinned = any(specifier.operator in ("==", "===") for specifier in specifiers)
        fitting = [wheel for wheel in offered if not wheel.yanked or pinned]
        final = [wheel for wheel in fitting if specifiers.contains(wheel.version, prereleases=False)]
        chosen = final or [wheel for wheel in fitting if specifiers.contains(wheel.version, prereleases=True)]
        # A source is built only when no wheel of any allowed version would do, however much newer it is.
        chosen = [wheel for wheel in chosen if not wheel.from_source] or chosen
        best: dict[object, Wheel] = {}
        for wheel in chosen:  # already ordered by fit within a version
            best.setdefault(wheel.version, wheel)
        return list(best.values())

    def is_satisfied_by(self, requirement: Requirement, candidate: _Candidate) -> bool:
        return requirement.specifier.contains(candidate.wheel.version, prereleases=True)

    def get_dependencies(self, candidate: _Candidate) -> list[Requirement]:
        key = (candidate.wheel.filename, candidate.extras)
        if key not in self._dependencies:
            self.cancel.check()
            needed = read_requirements(self.index, candidate.wheel, self.cancel)
            found = [_without_marker(item) for item in needed if _applies(item, candidate.extras, self.index.python)]
            if candidate.extras:
                # Extras add to the plain package, so both names must settle on one version.
                found.append(Requirement(f"{candidate.wheel.package}=={candidate.wheel.version}"))
            self.index.read_ahead([item.name for item in found], self.cancel)
            self._dependencies[key] = found
        return self._dependencies[key]


def _without_marker(requirement: Requirement) -> Requirement:
    plain = Requirement(str(requirement))
    plain.marker = None
    return plain


def read_requirements(index: PackageIndex, wheel: "Wheel", cancel: CancelToken) -> list[Requirement]:
    """The requirements of a wheel, from the index's metadata file or else from the end of the wheel, by range. Those of
    a source package are known once it is built."""
    if wheel.from_source:
        with index.built(wheel, cancel).path.open("rb") as file:
            content = _read_metadata(file, wheel)
    elif wheel.has_metadata:
        headers = index.headers_for(wheel.url)
        _, content = index.outbound.fetch(f"{wheel.url}.metadata", cancel=cancel, limit=METADATA_BYTES, headers=headers)
    else:
        remote = _RangeFile(index.outbound, wheel.url, index.headers_for(wheel.url), cancel)
        content = _read_metadata(remote, wheel)
    message = email.parser.BytesParser().parsebytes(content, headersonly=True)
    found: list[Requirement] = []
    for text in message.get_all("Requires-Dist") or []:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise UnsafeArchive(f"{wheel.filename} has the unreadable requirement {text[:120]!r}.") from error
        if requirement.url:
            raise UnsafeArchive(f"{wheel.filename} requires {requirement.name} from a URL, which is not supported.")
        found.append(requirement)
    return found


def _read_metadata(file: "IO[bytes] | _RangeFile", wheel: "Wheel") -> bytes:
    try:
        with zipfile.ZipFile(file) as archive:
            names = [
                name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1
            ]
            if len(names) != 1 or archive.getinfo(names[0]).file_size > METADATA_BYTES:
                raise UnsafeArchive(f"{wheel.filename} has no usable metadata.")
            return archive.read(names[0])
    except zipfile.BadZipFile as error:
        raise UnsafeArchive(f"{wheel.filename} is not a wheel: {error}.") from error


class _RangeFile(io.RawIOBase):
    """The blocks of a remote file that reading its zip directory needs."""

    def __init__(self, outbound: Outbound, url: str, headers: dict[str, str], cancel: CancelToken) -> None:
        self._outbound = outbound
        self._url = url
        self._headers = headers
        self._cancel = cancel
        response, _ = outbound.fetch(url, cancel=cancel, limit=0, method="HEAD", headers=headers)
        length = response.headers.get("content-length", "")
        if not length.isdigit():
            raise SourceUnavailable(f"{url} has no size.")
        self._size = int(length)
        self._at = 0
        self._blocks: dict[int, bytes] = {}

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, count: int | None = -1) -> bytes:
        end = self._size if count is None or count < 0 else min(self._size, self._at + count)
        out = bytearray()
        while self._at < end:
            block = self._block(self._at // BLOCK_BYTES)
            start = self._at % BLOCK_BYTES
            piece = block[start : start + end - self._at]
            out += piece
            self._at += len(piece)
        return bytes(out)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            first = number * BLOCK_BYTES
            last = min(self._size, first + BLOCK_BYTES) - 1
            response, body = self._outbound.fetch(
                self._url,
                cancel=self._cancel,
                limit=BLOCK_BYTES,
                headers={**self._headers, "Range": f"bytes={first}-{last}"},
            )
            if response.status != 206 or len(body) != last - first + 1:
                raise SourceUnavailable(f"{self._url} does not support range requests.")
            self._blocks[number] = body
        return self._blocks[number]
