"""From what a frontend asks for to what the artifact library is to install."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from corral.artifacts import BackendRequest, Catalogue, InstalledBackend, Manifest
from corral.artifacts.digests import parse_digest, sha256_digest
from corral.artifacts.errors import NotInstalled, NoVariantFits
from corral.artifacts.galleries.catalogue import CORRAL_GALLERY
from corral.artifacts.settings import GallerySettings, Peer
from corral.artifacts.signatures import read_policy
from corral.bus.messages import CommandExtras, InstallRequest
from corral.core.backends.variants import index_by_name
from corral.core.errors import InvalidInput
from corral.worker.ports import Fetch


class _Gallery(msgspec.Struct, frozen=True):
    url: str
    name: str = ""
    mirrors: list[str] | None = None
    verification: Any = None


_decode_galleries = msgspec.json.Decoder(list[_Gallery] | None).decode


def plain_name(backend: str) -> str:
    """`gallery@name` and `name` are one backend."""
    return backend.rpartition("@")[2]


def read_galleries(text: str) -> tuple[GallerySettings, ...] | None:
    """None when the worker's own list holds."""
    if not text:
        return None
    try:
        given = _decode_galleries(text) or []
    except msgspec.DecodeError as error:
        raise InvalidInput(f"backend_galleries cannot be read: {error}") from None
    return tuple(
        GallerySettings(
            name=gallery.name,
            url=gallery.url,
            mirrors=tuple(gallery.mirrors or ()),
            optional=True,
            verification=read_policy(gallery.verification),
        )
        for gallery in given
    )


@dataclass(frozen=True, slots=True)
class RequestReader:
    artifacts: Fetch
    capability: str

    async def read(self, request: InstallRequest, installed: InstalledBackend | None) -> BackendRequest:
        """`installed` is what an upgrade replaces; its source counts when no gallery names the backend any more."""
        extras = request.corral or CommandExtras()
        if extras.uris or request.uri:
            uris = tuple(extras.uris or (request.uri,))
            return with_extras(
                BackendRequest(name=request.name or plain_name(request.backend), uris=uris, alias=request.alias), extras
            )
        try:
            return with_extras(await self._from_gallery(request), extras)
        except (NotInstalled, NoVariantFits):
            current = installed.current if installed is not None else None
            if current is None or not current.metadata.uri:
                raise
            metadata = current.metadata
            again = BackendRequest(
                name=current.name,
                uris=(metadata.uri,),
                alias=metadata.alias,
                gallery_url=metadata.gallery_url,
                manifest=metadata.manifest,
                signatures=metadata.signatures,
            )
            return with_extras(again, extras)

    async def _from_gallery(self, request: InstallRequest) -> BackendRequest:
        galleries = read_galleries(request.backend_galleries)
        catalogue = await self.artifacts.read_catalogue(galleries)
        if galleries is not None:
            # The list replaces ours, Corral's own gallery included: LocalAI's frontends cannot drive what is in it.
            catalogue = _without_own(catalogue)
        try:
            return self.artifacts.request_for(catalogue, request.backend, self.capability, galleries=galleries)
        except NotInstalled as error:
            untold = [one.problem for one in catalogue.galleries if one.problem and one.problem not in str(error)]
            raise NotInstalled(" ".join([str(error), *untold])) from None


def _without_own(catalogue: Catalogue) -> Catalogue:
    entries = tuple(entry for entry in catalogue.entries if entry.gallery != CORRAL_GALLERY)
    return Catalogue(entries=entries, galleries=catalogue.galleries[1:], by_name=index_by_name(entries))


def with_extras(request: BackendRequest, extras: CommandExtras) -> BackendRequest:
    try:
        manifest = msgspec.convert(extras.manifest, Manifest) if extras.manifest is not None else request.manifest
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the manifest cannot be read: {error}") from None
    return replace(
        request,
        version=extras.version or request.version,
        sha256=sha256_digest(extras.sha256.removeprefix("sha256:")) if extras.sha256 else request.sha256,
        digest=parse_digest(extras.digest) if extras.digest else request.digest,
        manifest=manifest,
        peers=tuple(Peer(base_url=peer.url, token=peer.token) for peer in extras.peers or ()),
    )
