"""What a backend's name means on each node: which build, from where, and exactly which version of it.

Decided before anything is sent: a node that no build fits is told so, and a tag is turned into a digest once. Whatever
was found is kept in the store, so that loads and healing go on while a registry or a gallery is away."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from corral.artifacts import BackendEntry, BackendRequest, Catalogue
from corral.artifacts.content.versions import directory_name
from corral.artifacts.digests import Digest
from corral.artifacts.errors import NotInstalled, SourceRejected
from corral.artifacts.galleries.catalogue import signatures_for
from corral.artifacts.galleries.entries import backend_request
from corral.artifacts.oci.pins import Pin, pinned_uri
from corral.artifacts.settings import GallerySettings
from corral.artifacts.signatures import SignaturePolicy
from corral.bus.node_api import decode_facts
from corral.core.backends.intents import BackendSpec
from corral.core.backends.variants import Chosen, Unfit, Unresolved
from corral.core.errors import CorralError, InvalidInput, OutcomeUnknown, Unavailable
from corral.core.nodes.node import Node, NodeId

ANSWERS_WITHIN_S = 5.0
"""How long a load or a healing order waits for a registry before what is known from before counts."""
UNKNOWN_WITHIN_S = 20.0
"""The same where nothing is known from before."""
LATE_S = 120.0
"""For so long an answer counts that came when nobody waited for it any more."""
SILENT_S = 15.0
"""For so long one that could not be asked is not asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBackend:
    """One build for one kind of node."""

    variant: str
    """Its name, and its directory on the node."""
    uris: tuple[str, ...]
    digest: str
    version: str
    sha256: str
    manifest: str
    """JSON text, or empty."""
    alias: str
    reason: str
    unconfirmed: str = ""
    """Known from before: why the registry or gallery cannot be asked now."""
    left: tuple[str, ...] = ()
    """Versions that the fleet was rolled back from, to this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBuild:
    """What a reference means to nodes of one capability, as it is kept in the store."""

    build: ResolvedBackend
    platforms: tuple[str, ...] | None


Resolution = ResolvedBackend | Unfit


class Catalogues(Protocol):
    @property
    def backend_settings(self) -> tuple[GallerySettings, ...]: ...

    @property
    def backends_edition(self) -> int:
        """Moves on whenever galleries say something else than before."""
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
"""Where a request is answered from, and all that the answer depends on."""
_encode_kept = msgspec.json.Encoder().encode
_decode_kept = msgspec.json.Decoder(KeptBuild).decode


class Resolver:
    def __init__(self, catalogues: Catalogues, pins: Pins, kept: KeptBuilds) -> None:
        self._catalogues, self._pins, self._kept = catalogues, pins, kept
        self._asking: dict[_Source, tuple[float, asyncio.Task[Pin]]] = {}
        """What is being asked, and since when."""
        self._late: dict[_Source, tuple[float, Pin]] = {}
        """Answers that took long, and until when they count."""
        self._silent: dict[_Source, tuple[float, CorralError]] = {}
        """Until when a source that could not be asked is left alone, and what it said."""

    @property
    def edition(self) -> int:
        """Moves on whenever galleries say something else than before."""
        return self._catalogues.backends_edition

    async def look_again(self) -> None:
        await self._catalogues.look_again()

    async def name_of(self, reference: str) -> str:
        """As its gallery writes it; an unknown one as it is."""
        try:
            found = (await self._catalogues.backends()).find(reference)
        except NotInstalled:
            return reference
        gallery, at, _ = reference.rpartition("@")
        return f"{gallery}{at}{found.name}"

    async def look_up(self, reference: str) -> None:
        """A name that no gallery had when it was last read may be there now: whoever asks for it just wrote it down."""
        try:
            (await self._catalogues.backends()).find(reference)
        except NotInstalled:
            await self._catalogues.look_again()

    async def resolve_spec(self, spec: BackendSpec, backend: str, nodes: Iterable[Node]) -> dict[NodeId, Resolution]:
        """Of what a policy asks for, be it of a gallery or from a location."""
        return _or_raise(await self.resolve_spec_each(spec, backend, nodes))

    async def resolve_spec_each(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node]
    ) -> dict[NodeId, Resolution | Unresolved]:
        """As it is now. A build whose source is away is unknown to the nodes it is for, and to no others."""
        return await self._find_wish(spec, backend, nodes, kept=False)

    async def recall_spec(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node]
    ) -> dict[NodeId, Resolution | Unresolved]:
        """The same; while its source is away, what it meant when it was last asked."""
        return await self._find_wish(spec, backend, nodes, kept=True)

    async def resolve(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, Resolution]:
        """Raises NotFound when no gallery has the name, and Unavailable when a registry cannot be asked."""
        return _or_raise(await self._find(reference, nodes, kept=False))

    async def recall(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, Resolution | Unresolved]:
        """The same; while its source is away, what it meant when it was last asked."""
        return await self._find(reference, nodes, kept=True)

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, frozenset[str]]:
        """By node: what the build it would get goes by. Galleries tell; no registry is asked."""
        catalogue = await self._catalogues.backends()
        chosen = catalogue.resolve_for_nodes(reference, {node.id: capability_of(node) for node in nodes})
        names = {}
        for node_id, resolution in chosen.items():
            if isinstance(resolution, Chosen):
                entry = catalogue.chosen_entry(reference, resolution)
                names[NodeId(node_id)] = frozenset({entry.name, entry.alias} - {""})
        return names

    async def resolve_location(
        self, uri: str, name: str, alias: str, nodes: Iterable[Node]
    ) -> dict[NodeId, Resolution]:
        """Of something outside the galleries."""
        return _or_raise(await self._find_location(uri, name, alias, nodes, kept=False))

    async def is_gone(self, spec: BackendSpec) -> bool:
        """Its registry is there and says that it has that version no more."""
        for uri in spec.uris:
            try:
                await self._pins.pin(uri)
            except SourceRejected as error:
                if error.status != 404:
                    return False
            except CorralError:
                return False
            else:
                return False
        return bool(spec.uris)

    async def _find_wish(
        self, spec: BackendSpec, backend: str, nodes: Iterable[Node], *, kept: bool
    ) -> dict[NodeId, Resolution | Unresolved]:
        if spec.uri:
            return await self._find_location(spec.uri, spec.name or backend, spec.alias, nodes, kept=kept)
        return await self._find(spec.reference, nodes, kept=kept)

    async def _find(
        self, reference: str, nodes: Iterable[Node], *, kept: bool
    ) -> dict[NodeId, Resolution | Unresolved]:
        nodes = list(nodes)
        catalogue = await self._catalogues.backends()
        try:
            catalogue.find(reference)
        except NotInstalled as error:
            if not kept or not any(status.problem for status in catalogue.galleries):
                raise
            return await self._from_before(reference, nodes, error)
        chosen = catalogue.resolve_for_nodes(reference, {node.id: capability_of(node) for node in nodes})
        requests: dict[str, BackendRequest | CorralError] = {}
        for choice in {one for one in chosen.values() if isinstance(one, Chosen)}:
            requests[choice.name] = self._request(catalogue.chosen_entry(reference, choice))
        pins = await self._ask_all(requests, ANSWERS_WITHIN_S if kept else None)
        before = await self._read_kept(reference) if kept and any(map(_is_away, pins.values())) else {}

        def recalled(node: Node, name: str) -> KeptBuild | None:
            known = before.get(capability_of(node))
            return known if known is not None and known.build.variant == name else None

        choices = [(node, one.name) for node in nodes if isinstance(one := chosen[node.id], Chosen)]
        unknown = {name for node, name in choices if _is_away(pins[name]) and recalled(node, name) is None}
        if kept:
            pins |= await self._ask_all({name: requests[name] for name in unknown}, UNKNOWN_WITHIN_S)
        found: dict[NodeId, Resolution | Unresolved] = {}
        news: dict[str, KeptBuild] = {}
        for node in nodes:
            resolution, capability = chosen[node.id], capability_of(node)
            if isinstance(resolution, Unfit):
                found[node.id] = resolution
                continue
            request, pin = requests[resolution.name], pins[resolution.name]
            if isinstance(pin, CorralError):
                known = recalled(node, resolution.name) if _is_away(pin) else None
                found[node.id] = _recalled(node, known, pin) if known is not None else Unresolved(pin)
            elif isinstance(request, BackendRequest):
                build = _resolved(request, pin, resolution.reason)
                news[capability] = KeptBuild(build=build, platforms=pin.platforms)
                found[node.id] = _fitting(node, build, pin.platforms)
        await self._save(reference, news)
        return found

    async def _find_location(
        self, uri: str, name: str, alias: str, nodes: Iterable[Node], *, kept: bool
    ) -> dict[NodeId, Resolution | Unresolved]:
        _check_name(name)
        nodes = list(nodes)
        request = BackendRequest(name=name, uris=(uri,), alias=alias)
        reference = f"{uri} as {name} alias {alias}"
        pin = await self._ask(request, ANSWERS_WITHIN_S if kept else None)
        known = (await self._read_kept(reference)).get("") if kept and _is_away(pin) else None
        if kept and known is None:
            pin = await self._ask(request, UNKNOWN_WITHIN_S) if _is_away(pin) else pin
        if isinstance(pin, Pin):
            build = _resolved(request, pin, f"{uri} was asked for")
            await self._save(reference, {"": KeptBuild(build=build, platforms=pin.platforms)})
            return {node.id: _fitting(node, build, pin.platforms) for node in nodes}
        return {node.id: _recalled(node, known, pin) if known is not None else Unresolved(pin) for node in nodes}

    async def _from_before(
        self, reference: str, nodes: Iterable[Node], error: CorralError
    ) -> dict[NodeId, Resolution | Unresolved]:
        """No gallery that can be read has the name, and some cannot."""
        before = await self._read_kept(reference)
        if not before:
            raise error
        return {
            node.id: _recalled(node, known, error) if (known := before.get(capability_of(node))) else Unresolved(error)
            for node in nodes
        }

    async def _read_kept(self, reference: str) -> dict[str, KeptBuild]:
        return {capability: _decode_kept(text) for capability, text in (await self._kept.read(reference)).items()}

    async def _save(self, reference: str, builds: Mapping[str, KeptBuild]) -> None:
        texts = {capability: _encode_kept(build).decode() for capability, build in builds.items()}
        if texts:
            await self._kept.save(reference, texts)

    def galleries_text(self) -> str:
        """For workers that look names up themselves."""
        return (
            msgspec.json.encode(
                [
                    {
                        "name": gallery.name,
                        "url": gallery.url,
                        **({"mirrors": gallery.mirrors} if gallery.mirrors else {}),
                        **({"verification": gallery.verification} if gallery.verification else {}),
                    }
                    for gallery in self._catalogues.backend_settings
                ]
            ).decode()
            if self._catalogues.backend_settings
            else ""
        )

    def _request(self, entry: BackendEntry) -> BackendRequest | CorralError:
        signatures = signatures_for(self._catalogues.backend_settings, entry)
        request = replace(backend_request(entry), signatures=signatures)
        return request if request.uris else InvalidInput(f"{entry.name} has no location in its gallery")

    async def _ask_all(
        self, requests: Mapping[str, BackendRequest | CorralError], within_s: float | None
    ) -> dict[str, Pin | CorralError]:
        answers = await asyncio.gather(*(self._ask(one, within_s) for one in requests.values()))
        return dict(zip(requests, answers, strict=True))

    async def _ask(self, request: BackendRequest | CorralError, within_s: float | None) -> Pin | CorralError:
        """Without `within_s`, as it is now, however long that takes."""
        if isinstance(request, CorralError):
            return request
        try:
            return await (self._pin(request) if within_s is None else self._pin_within(request, within_s))
        except CorralError as error:
            return error

    async def _pin_within(self, request: BackendRequest, within_s: float) -> Pin:
        """All who ask for the same at the same time ask once, and wait until `within_s` after the first one asked."""
        now_s, source = asyncio.get_running_loop().time(), _source_of(request)
        late, silent = self._late.get(source), self._silent.get(source)
        if late is not None and now_s < late[0]:
            return late[1]
        if silent is not None and now_s < silent[0]:
            raise silent[1]
        if source not in self._asking:
            task = asyncio.create_task(self._pin(request), name=f"pin {request.name}")
            self._asking[source] = now_s, task
            task.add_done_callback(lambda done: self._answered(source, done))
        since_s, asking = self._asking[source]
        await asyncio.wait({asking}, timeout=max(0.0, since_s + within_s - now_s))
        if not asking.done():
            raise Unavailable(f"{request.uris[0]} has not answered within {within_s:g} s")
        return asking.result()

    def _answered(self, source: _Source, asking: "asyncio.Task[Pin]") -> None:
        now_s = asyncio.get_running_loop().time()
        since_s, _ = self._asking.pop(source)
        self._silent.pop(source, None)
        if asking.cancelled():
            return
        error = asking.exception()
        if isinstance(error, CorralError) and _is_away(error):
            self._silent[source] = now_s + SILENT_S, error
        elif error is None and now_s - since_s >= ANSWERS_WITHIN_S:
            self._late = {one: late for one, late in self._late.items() if late[0] > now_s}
            self._late[source] = now_s + LATE_S, asking.result()

    async def _pin(self, request: BackendRequest) -> Pin:
        """The first source that answers names the version; mirrors are held to it."""
        if request.digest is not None and request.signatures is None:
            return Pin(uri=pinned_uri(request.uris[0], request.digest), digest=request.digest)
        problem: CorralError | None = None
        for uri in request.uris:
            try:
                return await self._pins.pin(uri, request.sha256, signatures=request.signatures)
            except CorralError as error:  # the next mirror may know; the first error is told if none does
                problem = problem or error
        assert problem is not None
        raise problem


def _source_of(request: BackendRequest) -> _Source:
    return request.uris, request.sha256 or "", request.digest or "", repr(request.signatures)


def _or_raise(found: Mapping[NodeId, Resolution | Unresolved]) -> dict[NodeId, Resolution]:
    for one in found.values():
        if isinstance(one, Unresolved):
            raise one.error
    return {node_id: one for node_id, one in found.items() if not isinstance(one, Unresolved)}


def _is_away(answer: "Pin | CorralError") -> bool:
    """Nobody answered; an answer that there is no such thing is one."""
    if isinstance(answer, SourceRejected):
        return answer.status in (401, 403)
    return isinstance(answer, (Unavailable, OutcomeUnknown))


def _recalled(node: Node, known: KeptBuild, why: CorralError) -> Resolution:
    return _fitting(node, replace(known.build, unconfirmed=str(why)), known.platforms)


def _check_name(name: str) -> None:
    """Refused here, not by every worker: one with a slash would be listed under another name, and what stands before
    an @ is a gallery."""
    if "/" in name or "@" in name:
        raise InvalidInput(f"{name!r} cannot be the name of a backend: take one without / and @")
    directory_name(name)


def capability_of(node: Node) -> str:
    return node.capability or "default"


def platform_of(node: Node) -> str | None:
    return decode_facts(node.facts).platform if node.facts else None


def _fitting(node: Node, resolved: ResolvedBackend, platforms: tuple[str, ...] | None) -> Resolution:
    if node.key_hash is None and resolved.manifest:
        return Unfit(f"a LocalAI worker cannot start {resolved.variant}, which comes with a manifest of Corral's")
    platform = platform_of(node)
    if platform is None or platforms is None or platform in platforms:
        return resolved
    return Unfit(f"{resolved.variant} has no build for {platform}; it has some for {', '.join(platforms)}")


def _resolved(request: BackendRequest, pin: Pin, reason: str) -> ResolvedBackend:
    uris = [pinned_uri(uri, pin.digest) if pin.digest else uri for uri in request.uris]
    return ResolvedBackend(
        variant=request.name,
        uris=tuple(uris),
        digest=pin.digest,
        version=request.version,
        sha256=request.sha256 or "",
        manifest=msgspec.json.encode(request.manifest).decode() if request.manifest is not None else "",
        alias=request.alias,
        reason=reason,
    )


def spec_of(
    resolved: ResolvedBackend, *, reference: str, uri: str = "", galleries: str = "", force: bool = False
) -> BackendSpec:
    return BackendSpec(
        reference=reference,
        name=resolved.variant,
        uri=uri,
        alias=resolved.alias,
        galleries=galleries,
        uris=resolved.uris,
        digest=resolved.digest,
        version=resolved.version,
        sha256=resolved.sha256,
        manifest=resolved.manifest,
        force=force,
        reason=resolved.reason,
        left=resolved.left,
    )
