"""Resolves a backend's name for each node: which build, from which source, and exactly which version.

This happens before anything is sent: a node without a fitting build is skipped, and a tag becomes a digest once. The
answers are kept in the store, so that loads and corrections go on while a registry or gallery cannot be reached."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from corral.artifacts import BackendEntry, BackendRequest, Catalogue
from corral.artifacts.content.versions import directory_name
from corral.artifacts.digests import Digest
from corral.artifacts.errors import NotInstalled, SourceRejected
from corral.artifacts.galleries.catalogue import localai_obstacle, signatures_for
from corral.artifacts.galleries.entries import backend_request
from corral.artifacts.oci.pins import Pin, pinned_uri
from corral.artifacts.settings import GallerySettings
from corral.artifacts.signatures import SignaturePolicy
from corral.artifacts.sources.other_version import version_locations
from corral.bus.node_api import decode_facts
from corral.core.backends.build import BuildRef, BuildResolution, ResolvedBackend
from corral.core.backends.intents import BackendSpec
from corral.core.backends.runnable import find_obstacle
from corral.core.backends.variants import Chosen, Unfit, Unresolved
from corral.core.errors import CorralError, InvalidInput, NotFound, OutcomeUnknown, Unavailable
from corral.core.nodes.capability import capability_of
from corral.core.nodes.node import Node, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupLimits:
    answer_s: float = 5.0
    """How long a load or a correction waits for a registry before it uses the last known answer."""
    unknown_s: float = 20.0
    """The same if there is no earlier answer."""
    late_s: float = 120.0
    """How long an answer is used that came after everybody had stopped waiting."""
    unreachable_s: float = 15.0
    """How long an unreachable source is not asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBuild:
    """What a reference means on nodes of one capability, as kept in the store."""

    resolved: ResolvedBackend
    platforms: tuple[str, ...] | None


class Catalogues(Protocol):
    @property
    def backend_settings(self) -> tuple[GallerySettings, ...]: ...

    @property
    def backends_edition(self) -> int:
        """Grows whenever the content of a gallery changes."""
        ...

    async def backends(self) -> Catalogue: ...

    async def look_again(self) -> None: ...


class Pins(Protocol):
    async def pin(
        self, uri: str, sha256: Digest | None = None, *, signatures: SignaturePolicy | None = None
    ) -> Pin: ...


class KeptBuilds(Protocol):
    async def read(self, reference: str) -> Mapping[str, str]:
        """By capability, as JSON text."""
        ...

    async def save(self, reference: str, builds: Mapping[str, str]) -> None: ...


_Source = tuple[tuple[str, ...], str, str, str]
"""Sources, checksum, digest and signature policy of a request: all that its answer depends on."""
_encode_kept = msgspec.json.Encoder().encode
_decode_kept = msgspec.json.Decoder(KeptBuild).decode


class Resolver:
    def __init__(
        self, catalogues: Catalogues, pins: Pins, kept: KeptBuilds, limits: LookupLimits | None = None
    ) -> None:
        self._catalogues, self._pins, self._kept = catalogues, pins, kept
        self._limits = limits or LookupLimits()
        self._asking: dict[_Source, tuple[float, asyncio.Task[Pin]]] = {}
        """Running lookups, and when they began."""
        self._late: dict[_Source, tuple[float, Pin]] = {}
        """Answers that came late, and until when they are used."""
        self._unreachable: dict[_Source, tuple[float, CorralError]] = {}
        """Unreachable sources: until when they are not asked again, and the error."""
        self._localai: tuple[tuple[BackendEntry, ...], Catalogue] | None = None
        """Entries of the galleries, and what a LocalAI worker can run of them."""

    @property
    def edition(self) -> int:
        """Grows whenever the content of a gallery changes."""
        return self._catalogues.backends_edition

    async def look_again(self) -> None:
        await self._catalogues.look_again()

    async def name_of(self, reference: str) -> str:
        """The reference in its gallery's spelling; an unknown one unchanged."""
        try:
            found = (await self._catalogues.backends()).find(reference)
        except NotInstalled:
            return reference
        gallery, at, _ = reference.rpartition("@")
        return f"{gallery}{at}{found.name}"

    async def look_up(self, reference: str) -> None:
        """Reads the galleries again if none has the name: the entry may be new."""
        try:
            (await self._catalogues.backends()).find(reference)
        except NotInstalled:
            await self._catalogues.look_again()

    async def resolve_spec(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node]
    ) -> dict[NodeId, BuildResolution]:
        """Resolves a spec, from a gallery or from its own source."""
        return _raise_unresolved(await self.resolve_spec_each(spec, backend, nodes))

    async def resolve_spec_each(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node]
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        """The current answer for each node. Only nodes whose source cannot be reached get `Unresolved`."""
        return await self._find_spec(spec, backend, nodes, kept=False)

    async def recall_spec(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node]
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        """The same; while its source cannot be reached, the last known answer."""
        return await self._find_spec(spec, backend, nodes, kept=True)

    async def resolve(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, BuildResolution]:
        """The current answer, however long it takes; if the source cannot be reached, the last known one. Raises
        NotFound when no gallery has the name, and Unavailable when a registry cannot be reached and nothing is
        known."""
        return _raise_unresolved(await self._find(reference, nodes, kept=True, patient=True))

    async def recall(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, BuildResolution | Unresolved]:
        """The same, but a source that does not answer soon counts as unreachable."""
        return await self._find(reference, nodes, kept=True)

    async def read_lacking(self, references: Iterable[str], nodes: Iterable[Node]) -> dict[NodeId, frozenset[str]]:
        """By node: the builds that do not exist for its platform, by the last answers of their sources."""
        scopes = ("", *(f"{gallery.name}@" for gallery in self._catalogues.backend_settings))
        kept = [await self._read_kept(f"{scope}{reference}") for reference in sorted(references) for scope in scopes]
        platforms = {build.resolved.build.name: build.platforms for answers in kept for build in answers.values()}
        lacking = {
            node.id: frozenset(name for name, offered in platforms.items() if not _has_platform(node, offered))
            for node in (nodes if platforms else ())
        }
        return {node_id: names for node_id, names in lacking.items() if names}

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, frozenset[str]]:
        """By node: name and alias of the build it would get. No registry is asked."""
        chosen = self._choose(await self._catalogues.backends(), reference, nodes)
        return {
            node_id: frozenset({one.entry.name, one.entry.alias} - {""})
            for node_id, one in chosen.items()
            if isinstance(one, _Choice)
        }

    async def resolve_location(
        self, uri: str, name: str, alias: str, nodes: Iterable[Node]
    ) -> dict[NodeId, BuildResolution]:
        """Resolves a source outside the galleries. If it cannot be reached, the last known answer."""
        return _raise_unresolved(await self._find_location(uri, name, alias, nodes, kept=True, patient=True))

    async def split_version(self, reference: str) -> tuple[str, str]:
        """The reference without its version, and the version: `name@version` or `gallery@name@version`. `gallery@name`
        has none."""
        head, at, version = reference.rpartition("@")
        catalogue = await self._catalogues.backends()
        for one in (reference, head) if at else ():
            try:
                catalogue.find(one)
            except NotInstalled:
                continue
            return (reference, "") if one == reference else (head, version)
        return reference, ""

    async def resolve_version(self, spec: BackendSpec, build: str, *, version: str = "", digest: str = "") -> BuildRef:
        """Another version of a build, at the source of the spec. Raises NotFound where the source does not have it."""
        request = await self._request_of(spec, build)
        if isinstance(request, CorralError):
            raise request
        offered = request.build
        problem: CorralError | None = None
        for uri in offered.uris:
            pinned = pinned_uri(uri, digest) if digest else ""
            tried = [pinned] if digest and pinned != uri else version_locations(uri, offered.version, version)
            for location in tried:
                try:
                    pin = await self._pins.pin(location, signatures=request.signatures)
                except SourceRejected as error:
                    problem = problem or error
                    continue
                uris = (pin.uri, *(pinned_uri(one, pin.digest) for one in offered.uris if pin.digest and one != uri))
                return replace(offered, uris=uris, digest=pin.digest, sha256="", version=version)
        what = f"version {version}" if version else digest
        if problem is None:
            raise NotFound(f"the source of {build} does not say where {what} is: {', '.join(offered.uris)}")
        raise NotFound(f"the source of {build} does not have {what}: {problem}")

    async def _request_of(self, spec: BackendSpec, build: str) -> BackendRequest | CorralError:
        if spec.uri:
            return BackendRequest(build=BuildRef(name=build, uris=(spec.uri,), alias=spec.build.alias))
        catalogue = await self._catalogues.backends()
        try:
            return self._request(catalogue, catalogue.chosen_entry(spec.reference, Chosen(build, "")))
        except KeyError:
            return NotFound(f"no gallery has {build}")

    async def is_gone(self, spec: BackendSpec) -> bool:
        """Whether all sources answer that they no longer have this version."""
        for uri in spec.build.uris:
            try:
                await self._pins.pin(uri)
            except SourceRejected as error:
                if error.status != 404:
                    return False
            except CorralError:
                return False
            else:
                return False
        return bool(spec.build.uris)

    async def _find_spec(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node], *, kept: bool
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        if spec.uri:
            return await self._find_location(spec.uri, spec.build.name or backend, spec.build.alias, nodes, kept=kept)
        return await self._find(spec.reference, nodes, kept=kept)

    async def _find(
        self, reference: str, nodes: Iterable[Node], *, kept: bool, patient: bool = False
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        nodes = list(nodes)
        catalogue = await self._catalogues.backends()
        try:
            catalogue.find(reference)
        except NotInstalled as error:
            if not kept or not any(status.problem for status in catalogue.galleries):
                raise
            return await self._find_kept(reference, nodes, error)
        found: dict[NodeId, BuildResolution | Unresolved] = {}
        fresh: dict[str, KeptBuild] = {}
        chosen = self._choose(catalogue, reference, nodes)
        unsuited: dict[NodeId, frozenset[str]] = {}
        while chosen:
            by_node = {node.id: node for node in nodes if node.id in chosen}
            answers = await self._pin_choices(catalogue, reference, by_node, chosen, kept=kept, patient=patient)
            again: dict[NodeId, _Choice | Unfit] = {}
            for node_id, answer in answers.items():
                node, choice = by_node[node_id], chosen[node_id]
                found.setdefault(node_id, answer.found)
                if not isinstance(answer.found, Unfit):
                    found[node_id] = answer.found
                if answer.fresh is not None:
                    key = _kept_under(node)
                    fresh[f"{key} {platform_of(node)}" if node_id in unsuited else key] = answer.fresh
                if answer.lacks_platform and isinstance(choice, _Choice):
                    unsuited[node_id] = unsuited.get(node_id, frozenset()) | {choice.id}
                    other = self._choose_other(catalogue, reference, node, unsuited[node_id])
                    if other is not None:
                        again[node_id] = other
            chosen = again
        await self._save(reference, fresh)
        return found

    async def _pin_choices(
        self,
        catalogue: Catalogue,
        reference: str,
        nodes: "Mapping[NodeId, Node]",
        chosen: "Mapping[NodeId, _Choice | Unfit]",
        *,
        kept: bool,
        patient: bool,
    ) -> "dict[NodeId, _Answer]":
        """The version of the build that was chosen for each node. With `kept`, sources that cannot be reached are
        replaced by the last known answer; unless `patient`, they have to answer in time."""
        entries = {one.id: one.entry for one in chosen.values() if isinstance(one, _Choice)}
        requests = {identity: self._request(catalogue, entry) for identity, entry in entries.items()}
        hurry = kept and not patient
        pins = await self._ask_all(requests, self._limits.answer_s if hurry else None)
        before = await self._read_kept(reference) if kept and any(map(_is_unreachable, pins.values())) else {}
        choices = [(nodes[node_id], one) for node_id, one in chosen.items() if isinstance(one, _Choice)]
        unknown = {
            one.id for node, one in choices if _is_unreachable(pins[one.id]) and _recall(before, node, one) is None
        }
        if hurry:
            pins |= await self._ask_all({identity: requests[identity] for identity in unknown}, self._limits.unknown_s)
        answers: dict[NodeId, _Answer] = {}
        for node_id, choice in chosen.items():
            node = nodes[node_id]
            if isinstance(choice, Unfit):
                answers[node_id] = _Answer(choice)
                continue
            request, pin = requests[choice.id], pins[choice.id]
            if isinstance(pin, CorralError):
                known = _recall(before, node, choice) if _is_unreachable(pin) else None
                answers[node_id] = _Answer(_last_known(node, known, pin) if known is not None else Unresolved(pin))
            elif isinstance(request, BackendRequest):
                resolved = _resolved(request, pin, choice.reason)
                answers[node_id] = _Answer(
                    _fitting(node, resolved, pin.platforms),
                    fresh=KeptBuild(resolved=resolved, platforms=pin.platforms),
                    lacks_platform=not _has_platform(node, pin.platforms),
                )
        return answers

    def _choose_other(
        self, catalogue: Catalogue, reference: str, node: Node, unsuited: frozenset[str]
    ) -> "_Choice | None":
        """The next build of the family for a node whose platform the ones before do not have. None if there is none."""
        if not node.speaks_corral:
            return None
        resolution = catalogue.resolve(reference, capability_of(node), without=unsuited)
        if not isinstance(resolution, Chosen):
            return None
        entry = catalogue.chosen_entry(reference, resolution)
        names = ", ".join(sorted(one.partition("@")[2] for one in unsuited))
        other = _Choice(entry, f"{entry.name} replaces {names}, which has no build for {platform_of(node)}")
        return other if other.id not in unsuited else None

    def _choose(self, catalogue: Catalogue, reference: str, nodes: Iterable[Node]) -> "dict[NodeId, _Choice | Unfit]":
        """The entry for each node. On a LocalAI worker, only builds that it can run are considered."""
        found: dict[NodeId, _Choice | Unfit] = {}
        for speaks_corral, group in _by_worker(nodes).items():
            offered = catalogue if speaks_corral else self._for_localai(catalogue)
            capabilities = {str(node.id): capability_of(node) for node in group}
            for node_id, resolution in offered.resolve_for_nodes(reference, capabilities).items():
                if isinstance(resolution, Chosen):
                    found[NodeId(node_id)] = _Choice(offered.chosen_entry(reference, resolution), resolution.reason)
                else:
                    obstacle = "" if speaks_corral else _obstacle(catalogue, offered, reference, capabilities[node_id])
                    found[NodeId(node_id)] = Unfit(obstacle) if obstacle else resolution
        return found

    def _for_localai(self, catalogue: Catalogue) -> Catalogue:
        if self._localai is None or self._localai[0] is not catalogue.entries:
            self._localai = catalogue.entries, catalogue.for_localai()
        return self._localai[1]

    async def _find_location(
        self, uri: str, name: str, alias: str, nodes: Iterable[Node], *, kept: bool, patient: bool = False
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        _check_name(name)
        nodes = list(nodes)
        request = BackendRequest(build=BuildRef(name=name, uris=(uri,), alias=alias))
        reference = f"{uri} as {name} alias {alias}"
        hurry = kept and not patient
        pin = await self._ask(request, self._limits.answer_s if hurry else None)
        known = (await self._read_kept(reference)).get("") if kept and _is_unreachable(pin) else None
        if hurry and known is None:
            pin = await self._ask(request, self._limits.unknown_s) if _is_unreachable(pin) else pin
        if isinstance(pin, Pin):
            resolved = _resolved(request, pin, f"{uri} was requested")
            await self._save(reference, {"": KeptBuild(resolved=resolved, platforms=pin.platforms)})
            return {node.id: _located(node, name, uri) or _fitting(node, resolved, pin.platforms) for node in nodes}
        return {
            node.id: _located(node, name, uri)
            or (_last_known(node, known, pin) if known is not None else Unresolved(pin))
            for node in nodes
        }

    async def _find_kept(
        self, reference: str, nodes: Iterable[Node], error: CorralError
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        """The last known answers: no readable gallery has the name, but some galleries cannot be read."""
        before = await self._read_kept(reference)
        if not before:
            raise error
        return {
            node.id: _last_known(node, known, error) if (known := _recall(before, node)) else Unresolved(error)
            for node in nodes
        }

    async def _read_kept(self, reference: str) -> dict[str, KeptBuild]:
        return {capability: _decode_kept(text) for capability, text in (await self._kept.read(reference)).items()}

    async def _save(self, reference: str, builds: Mapping[str, KeptBuild]) -> None:
        texts = {capability: _encode_kept(build).decode() for capability, build in builds.items()}
        if texts:
            await self._kept.save(reference, texts)

    def galleries_text(self, reference: str = "") -> str:
        """For workers that look names up themselves: all galleries or, for `gallery@name`, that one."""
        named = reference.partition("@")[0] if "@" in reference else ""
        settings = self._catalogues.backend_settings
        chosen = [gallery for gallery in settings if gallery.name == named] or settings
        if not chosen:
            return ""
        return msgspec.json.encode(
            [
                {
                    "name": gallery.name,
                    "url": gallery.url,
                    **({"mirrors": gallery.mirrors} if gallery.mirrors else {}),
                    **({"verification": gallery.verification} if gallery.verification else {}),
                }
                for gallery in chosen
            ]
        ).decode()

    def _request(self, catalogue: Catalogue, entry: BackendEntry) -> BackendRequest | CorralError:
        signatures = signatures_for(self._catalogues.backend_settings, catalogue, entry)
        request = replace(backend_request(entry), signatures=signatures)
        return request if request.build.uris else InvalidInput(f"{entry.name} has no source in its gallery")

    async def _ask_all(
        self, requests: Mapping[str, BackendRequest | CorralError], within_s: float | None
    ) -> dict[str, Pin | CorralError]:
        answers = await asyncio.gather(*(self._ask(one, within_s) for one in requests.values()))
        return dict(zip(requests, answers, strict=True))

    async def _ask(self, request: BackendRequest | CorralError, within_s: float | None) -> Pin | CorralError:
        """Without `within_s`, the current answer, however long that takes."""
        if isinstance(request, CorralError):
            return request
        try:
            return await (self._pin(request) if within_s is None else self._pin_within(request, within_s))
        except CorralError as error:
            return error

    async def _pin_within(self, request: BackendRequest, within_s: float) -> Pin:
        """Single-flight: simultaneous lookups of one source are shared, and wait until `within_s` after the first."""
        now_s, source = asyncio.get_running_loop().time(), _source_of(request)
        late, unreachable = self._late.get(source), self._unreachable.get(source)
        if late is not None and now_s < late[0]:
            return late[1]
        if unreachable is not None and now_s < unreachable[0]:
            raise unreachable[1]
        if source not in self._asking:
            task = asyncio.create_task(self._pin(request), name=f"pin {request.build.name}")
            self._asking[source] = now_s, task
            task.add_done_callback(lambda done: self._answered(source, done))
        since_s, asking = self._asking[source]
        await asyncio.wait({asking}, timeout=max(0.0, since_s + within_s - now_s))
        if not asking.done():
            raise Unavailable(f"{request.build.uris[0]} has not answered within {within_s:g} s")
        return asking.result()

    def _answered(self, source: _Source, asking: "asyncio.Task[Pin]") -> None:
        now_s = asyncio.get_running_loop().time()
        since_s, _ = self._asking.pop(source)
        self._unreachable.pop(source, None)
        if asking.cancelled():
            return
        error = asking.exception()
        if isinstance(error, CorralError) and _is_unreachable(error):
            self._unreachable[source] = now_s + self._limits.unreachable_s, error
        elif error is None and now_s - since_s >= self._limits.answer_s:
            self._late = {one: late for one, late in self._late.items() if late[0] > now_s}
            self._late[source] = now_s + self._limits.late_s, asking.result()

    async def _pin(self, request: BackendRequest) -> Pin:
        """The first source that answers decides the version; its mirrors must have the same."""
        build = request.build
        if build.digest and request.signatures is None:
            return Pin(uri=pinned_uri(build.uris[0], build.digest), digest=build.digest)
        problem: CorralError | None = None
        for uri in build.uris:
            try:
                return await self._pins.pin(uri, request.sha256, signatures=request.signatures)
            except CorralError as error:  # a mirror may know; otherwise the first error is raised
                problem = problem or error
        assert problem is not None
        raise problem


@dataclass(frozen=True, slots=True)
class _Choice:
    """The gallery entry for a node, and why it was chosen."""

    entry: BackendEntry
    reason: str

    @property
    def id(self) -> str:
        return f"{self.entry.gallery}@{self.entry.name}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one node gets, as far as it is known."""

    found: BuildResolution | Unresolved
    fresh: KeptBuild | None = None
    lacks_platform: bool = False
    """The build exists, but not for the node's platform."""


def _recall(before: Mapping[str, KeptBuild], node: Node, choice: _Choice | None = None) -> KeptBuild | None:
    """The last known answer: the chosen build, or the one that replaced it on the node's platform."""
    known, other = before.get(_kept_under(node)), before.get(f"{_kept_under(node)} {platform_of(node)}")
    if known is None or (choice is not None and known.resolved.build.name != choice.entry.name):
        return None
    return other if other is not None and not _has_platform(node, known.platforms) else known


def _by_worker(nodes: Iterable[Node]) -> dict[bool, list[Node]]:
    """By whether they run a Corral worker."""
    found: dict[bool, list[Node]] = {}
    for node in nodes:
        found.setdefault(node.speaks_corral, []).append(node)
    return found


def _obstacle(catalogue: Catalogue, offered: Catalogue, reference: str, capability: str) -> str:
    """Why a LocalAI worker cannot run the build that a Corral worker would get, where nothing else has the name."""
    with suppress(NotInstalled):
        offered.find(reference)
        return ""
    resolution = catalogue.resolve(reference, capability)
    return localai_obstacle(catalogue.chosen_entry(reference, resolution)) if isinstance(resolution, Chosen) else ""


def _kept_under(node: Node) -> str:
    """The key of a stored answer: nodes with the same key get the same build."""
    return capability_of(node) if node.speaks_corral else f"localai:{capability_of(node)}"


def _source_of(request: BackendRequest) -> _Source:
    build = request.build
    return build.uris, build.sha256, build.digest, repr(request.signatures)


def _raise_unresolved(found: Mapping[NodeId, BuildResolution | Unresolved]) -> dict[NodeId, BuildResolution]:
    for one in found.values():
        if isinstance(one, Unresolved):
            raise one.error
    return {node_id: one for node_id, one in found.items() if not isinstance(one, Unresolved)}


def _is_unreachable(answer: "Pin | CorralError") -> bool:
    """Whether the source could not be asked. "Not found" is an answer."""
    if isinstance(answer, SourceRejected):
        return answer.status in (401, 403)
    return isinstance(answer, (Unavailable, OutcomeUnknown))


def _last_known(node: Node, known: KeptBuild, why: CorralError) -> BuildResolution:
    return _fitting(node, replace(known.resolved, unconfirmed=str(why)), known.platforms)


def _check_name(name: str) -> None:
    """Rejects names that workers cannot use: the part before an @ is a gallery, and a slash changes the listed name."""
    if "/" in name or "@" in name:
        raise InvalidInput(f"{name!r} cannot be the name of a backend; choose one without / and @")
    directory_name(name)


def platform_of(node: Node) -> str | None:
    return decode_facts(node.facts).platform if node.facts else None


def _fitting(node: Node, resolved: ResolvedBackend, platforms: tuple[str, ...] | None) -> BuildResolution:
    build = resolved.build
    obstacle = find_obstacle(node, build.name, uri=build.uris[0] if build.uris else "", manifest=bool(build.manifest))
    if obstacle:
        return Unfit(obstacle)
    if platforms is None or _has_platform(node, platforms):
        return resolved
    return Unfit(f"{build.name} has no build for {platform_of(node)}; it has builds for {', '.join(platforms)}")


def _has_platform(node: Node, platforms: tuple[str, ...] | None) -> bool:
    platform = platform_of(node)
    return platform is None or platforms is None or platform in platforms


def _located(node: Node, name: str, uri: str) -> Unfit | None:
    """Where the node's worker cannot use a source outside the galleries. A LocalAI worker gets it as it was written."""
    obstacle = find_obstacle(node, name, uri=uri, manifest=False)
    return Unfit(obstacle) if obstacle else None


def _resolved(request: BackendRequest, pin: Pin, reason: str) -> ResolvedBackend:
    uris = tuple(pinned_uri(uri, pin.digest) if pin.digest else uri for uri in request.build.uris)
    return ResolvedBackend(build=replace(request.build, uris=uris, digest=pin.digest), reason=reason)


def spec_of(
    resolved: ResolvedBackend, *, reference: str, uri: str = "", galleries: str = "", force: bool = False
) -> BackendSpec:
    """The spec of an intent that installs this build."""
    return BackendSpec(
        reference=reference,
        build=resolved.build,
        uri=uri,
        galleries=galleries,
        force=force,
        reason=resolved.reason,
        pinned=resolved.pinned,
    )


def source_of(spec: BackendSpec, backend: str) -> BackendSpec:
    """What was requested, before it was resolved."""
    if not spec.uri:
        return BackendSpec(reference=spec.reference)
    build = BuildRef(name=spec.build.name or backend, alias=spec.build.alias)
    return BackendSpec(reference=spec.reference, build=build, uri=spec.uri)
