"""Converts a frontend's install request into a request to the artifact library."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from corral.artifacts import BackendRequest, Catalogue, InstalledBackend
from corral.artifacts.content.manifest import encode_manifest
from corral.artifacts.errors import NotInstalled, NoVariantFits
from corral.artifacts.galleries.catalogue import CORRAL_GALLERY
from corral.artifacts.settings import GallerySettings, Peer
from corral.artifacts.signatures import read_policy
from corral.bus.messages import CommandExtras, InstallRequest
from corral.core.backends.build import BuildRef, plain_name
from corral.core.errors import InvalidInput
from corral.worker.ports import Fetch


class _Gallery(msgspec.Struct, frozen=True):
    url: str
    name: str = ""
    mirrors: list[str] | None = None
    verification: Any = None


_decode_galleries = msgspec.json.Decoder(list[_Gallery] | None).decode


def read_galleries(text: str) -> tuple[GallerySettings, ...] | None:
    """None if the worker's own gallery list applies."""
    if not text:
        return None
    try:
        given = _decode_galleries(text) or []
    except msgspec.DecodeError as error:
        raise InvalidInput(f"backend_galleries is not a valid list of galleries: {error}") from None
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
        """`installed` is the version that an upgrade replaces; its source is used if no gallery lists the backend."""
        extras = request.corral or CommandExtras()
        given = extras.build or BuildRef()
        if given.uris or request.uri:
            name = request.name or plain_name(request.backend)
            build = BuildRef(name=name, alias=request.alias, uris=given.uris or (request.uri,))
            return with_extras(BackendRequest(build=build), extras)
        try:
            return with_extras(await self._from_gallery(request), extras)
        except (NotInstalled, NoVariantFits):
            current = installed.current if installed is not None else None
            if current is None or not current.metadata.uri:
                raise
            metadata = current.metadata
            build = BuildRef(
                name=current.name,
                alias=metadata.alias,
                uris=(metadata.uri,),
                manifest=encode_manifest(metadata.manifest),
            )
            again = BackendRequest(build=build, gallery_url=metadata.gallery_url, signatures=metadata.signatures)
            return with_extras(again, extras)

    async def _from_gallery(self, request: InstallRequest) -> BackendRequest:
        galleries = read_galleries(request.backend_galleries)
        catalogue = await self.artifacts.read_catalogue(galleries)
        if galleries is not None:
            # The list also replaces Corral's own gallery, whose backends LocalAI's frontends cannot use.
            catalogue = _without_own(catalogue)
        try:
            return self.artifacts.request_for(catalogue, request.backend, self.capability, galleries=galleries)
        except NotInstalled as error:
            problems = [one.problem for one in catalogue.galleries if one.problem and one.problem not in str(error)]
            raise NotInstalled(" ".join([str(error), *problems])) from None


def _without_own(catalogue: Catalogue) -> Catalogue:
    entries = tuple(entry for entry in catalogue.entries if entry.gallery != CORRAL_GALLERY)
    return Catalogue(entries=entries, galleries=catalogue.galleries[1:])


def with_extras(request: BackendRequest, extras: CommandExtras) -> BackendRequest:
    """Adds the version in the command. Name and alias come from LocalAI's fields of the request."""
    given = replace(extras.build or BuildRef(), name="", alias="", uris=())
    peers = tuple(Peer(base_url=peer.url, token=peer.token, is_far=peer.is_far) for peer in extras.peers or ())
    complete = replace(request, build=request.build.with_overrides(given), peers=peers)
    _ = complete.digest, complete.sha256, complete.manifest  # raises if one of them is invalid
    return complete
