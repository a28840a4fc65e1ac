"""What a backend's name means on each node: which build, from where, and exactly which version of it.

Decided before anything is sent: a node that no build fits is told so, and a tag is turned into a digest once."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from corral.artifacts import BackendEntry, BackendRequest, Catalogue
from corral.artifacts.digests import Digest
from corral.artifacts.errors import NotInstalled
from corral.artifacts.galleries.catalogue import signatures_for
from corral.artifacts.galleries.entries import backend_request
from corral.artifacts.pins import Pin, pinned_uri
from corral.artifacts.settings import GallerySettings
from corral.artifacts.signatures import SignaturePolicy
from corral.artifacts.versions import directory_name
from corral.bus.node_api import decode_facts
from corral.core.errors import CorralError, InvalidInput
from corral.core.intents import Wish
from corral.core.nodes import Node, NodeId
from corral.core.variants import Chosen, Unfit


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


Resolution = ResolvedBackend | Unfit


class Catalogues(Protocol):
    @property
    def backend_settings(self) -> tuple[GallerySettings, ...]: ...

    async def backends(self) -> Catalogue: ...

    async def look_again(self) -> None: ...


class Pins(Protocol):
    async def pin(
        self, uri: str, sha256: Digest | None = None, *, signatures: SignaturePolicy | None = None
    ) -> Pin: ...


class Resolver:
    def __init__(self, catalogues: Catalogues, pins: Pins) -> None:
        self._catalogues, self._pins = catalogues, pins

    async def look_again(self) -> None:
        await self._catalogues.look_again()

    async def look_up(self, element: str) -> None:
        """A name that no gallery had when it was last read may be there now: whoever asks for it just wrote it down."""
        try:
            (await self._catalogues.backends()).find(element)
        except NotInstalled:
            await self._catalogues.look_again()

    async def resolve_wish(self, wish: Wish, backend: str, nodes: Iterable[Node]) -> dict[NodeId, Resolution]:
        """Of what a policy asks for, be it of a gallery or from a location."""
        if wish.uri:
            return await self.resolve_location(wish.uri, wish.name or backend, wish.alias, nodes)
        return await self.resolve(wish.element, nodes)

    async def resolve(self, element: str, nodes: Iterable[Node]) -> dict[NodeId, Resolution]:
        """Raises NotFound when no gallery has the name, and Unavailable when a registry cannot be asked."""
        catalogue = await self._catalogues.backends()
        catalogue.find(element)
        nodes = list(nodes)
        chosen = catalogue.resolve_for_nodes(element, {node.id: capability_of(node) for node in nodes})
        entries: dict[str, BackendEntry] = {}
        for resolution in chosen.values():
            if isinstance(resolution, Chosen):
                entries[resolution.name] = catalogue.chosen_entry(element, resolution)
        requests = {name: self._request(entry) for name, entry in entries.items()}
        pins = await self._pin_all(requests)
        builds = {
            resolution: _resolved(requests[resolution.name], pins[resolution.name], resolution.reason)
            for resolution in {one for one in chosen.values() if isinstance(one, Chosen)}
        }
        found: dict[NodeId, Resolution] = {}
        for node in nodes:
            resolution = chosen[node.id]
            if isinstance(resolution, Unfit):
                found[node.id] = resolution
            else:
                found[node.id] = _fitting(node, builds[resolution], pins[resolution.name])
        return found

    async def resolve_location(
        self, uri: str, name: str, alias: str, nodes: Iterable[Node]
    ) -> dict[NodeId, Resolution]:
        """Of something outside the galleries."""
        _check_name(name)
        request = BackendRequest(name=name, uris=(uri,), alias=alias)
        pin = await self._pins.pin(uri)
        resolved = _resolved(request, pin, f"{uri} was asked for")
        return {node.id: _fitting(node, resolved, pin) for node in nodes}

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

    def _request(self, entry: BackendEntry) -> BackendRequest:
        signatures = signatures_for(self._catalogues.backend_settings, entry)
        request = replace(backend_request(entry), signatures=signatures)
        if not request.uris:
            raise InvalidInput(f"{entry.name} has no location in its gallery")
        return request

    async def _pin_all(self, requests: dict[str, BackendRequest]) -> dict[str, Pin]:
        pins = await asyncio.gather(*(self._pin(request) for request in requests.values()))
        return dict(zip(requests, pins, strict=True))

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


def _fitting(node: Node, resolved: ResolvedBackend, pin: Pin) -> Resolution:
    if node.key_hash is None and resolved.manifest:
        return Unfit(f"a LocalAI worker cannot start {resolved.variant}, which comes with a manifest of Corral's")
    platform = platform_of(node)
    if platform is None or pin.platforms is None or platform in pin.platforms:
        return resolved
    return Unfit(f"{resolved.variant} has no build for {platform}; it has some for {', '.join(pin.platforms)}")


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


def wish_of(
    resolved: ResolvedBackend, *, element: str, uri: str = "", galleries: str = "", force: bool = False
) -> Wish:
    return Wish(
        element=element,
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
    )
