"""The catalogue: the entries of all galleries, by name."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TypeVar

from corral.artifacts.cancel import CancelToken
from corral.artifacts.errors import ArtifactError, BadGallery, NotInstalled
from corral.artifacts.galleries.entries import (
    BackendEntry,
    BaseFile,
    ModelEntry,
    ResolvedModel,
    parse_backends,
    parse_base,
    parse_models,
    refuse_local_files,
    resolve_model,
)
from corral.artifacts.galleries.sources import GallerySources
from corral.artifacts.references import names_local_file
from corral.artifacts.settings import GallerySettings, gallery_at
from corral.artifacts.signatures import SignaturePolicy, check_policy
from corral.core.backends.former_names import current_name
from corral.core.backends.gallery_addresses import LOCALAI_BACKEND_GALLERY, LOCALAI_MODEL_GALLERY
from corral.core.backends.runnable import find_localai_obstacle, pick_runnable
from corral.core.backends.variants import (
    Chosen,
    Resolution,
    index_by_name,
    is_meta,
    resolve_for_nodes,
    resolve_in_galleries,
)
from corral.core.suggestions import near_names

Entry = TypeVar("Entry", BackendEntry, ModelEntry)

CORRAL_GALLERY = "corral"
LOCALAI_BACKENDS = gallery_at(LOCALAI_BACKEND_GALLERY)
LOCALAI_MODELS = gallery_at(LOCALAI_MODEL_GALLERY)


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryStatus:
    """The state of a gallery, as shown in the UI."""

    name: str
    url: str
    entries: int
    age_s: float
    problem: str = ""
    """Why the gallery could not be read. If there are entries, they come from the copy cached `age_s` ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The state of the galleries that a catalogue was read from."""

    galleries: tuple[GalleryStatus, ...]

    def unread(self) -> list[str]:
        """A sentence for each gallery without any entries, because a missing name may be there."""
        return [
            f"Gallery {gallery.name} could not be read: {gallery.problem}"
            for gallery in self.galleries
            if gallery.problem and not gallery.entries
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue(Read):
    """Backends of every gallery, in the order of the galleries. The first entry of a name wins, except where only
    another gallery's build uses a node's accelerator."""

    entries: tuple[BackendEntry, ...]
    by_name: dict[str, BackendEntry] = field(init=False, repr=False, compare=False)
    """By lower-case name; the first gallery that has it."""
    by_gallery: dict[str, dict[str, BackendEntry]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts: dict[str, list[BackendEntry]] = {}
        for entry in self.entries:
            parts.setdefault(entry.gallery, []).append(entry)
        object.__setattr__(self, "by_name", index_by_name(self.entries))
        object.__setattr__(self, "by_gallery", {gallery: index_by_name(found) for gallery, found in parts.items()})

    def find(self, name: str) -> BackendEntry:
        """The entry of the first gallery that has the name. Raises NotInstalled."""
        scopes = self._scopes(name)
        if not scopes:
            near = near_names(name, [entry.name for entry in self.entries])
            hint = [f"Did you mean {' or '.join(near)}?"] if near else []
            raise NotInstalled(" ".join([f"No gallery has a backend named {name}.", *hint, *self.unread()]))
        known, galleries = scopes
        return next(iter(galleries.values()))[known]

    def resolve(
        self, name: str, capability: str, *, substitute: bool = False, without: Collection[str] = ()
    ) -> Resolution:
        """`without`: builds that are left out, as `gallery@name`."""
        known, galleries = self._scopes(name) or (name, {})
        return resolve_in_galleries(galleries, known, capability, substitute=substitute, without=without)

    def resolve_for_nodes(self, name: str, capabilities: dict[str, str]) -> dict[str, Resolution]:
        known, galleries = self._scopes(name) or (name, {})
        return resolve_for_nodes(galleries, known, capabilities)

    def chosen_entry(self, name: str, chosen: Chosen) -> BackendEntry:
        """The entry that `name` was resolved to. Raises KeyError if no gallery with that name has it."""
        if chosen.gallery in self.by_gallery:
            return self.by_gallery[chosen.gallery][chosen.name.lower()]
        _, galleries = self._scopes(name) or (name, {})
        for found in galleries.values():
            if chosen.name.lower() in found:
                return found[chosen.name.lower()]
        raise KeyError(chosen.name)

    def for_localai(self) -> "Catalogue":
        """What a LocalAI worker can run of it."""
        entries = pick_runnable(self.entries, localai_obstacle)
        return replace(self, entries=entries)

    def builds_of(self, entry: BackendEntry) -> list[BackendEntry]:
        """The builds of a family; of any other entry, itself."""
        if not is_meta(entry):
            return [entry]
        own = self.by_gallery[entry.gallery]
        names = dict.fromkeys(target.lower() for target in entry.capabilities.values())
        return [own[name] for name in names if name in own]

    def _scopes(self, name: str) -> tuple[str, dict[str, dict[str, BackendEntry]]] | None:
        """The name as a gallery has it, in lower case, and the galleries that have it: the one that is named, or all.
        A family stays within its gallery: `llama-cpp` of one gallery must not resolve to a build of another."""
        for text in dict.fromkeys((name, current_name(name))):
            gallery, at, plain = text.lower().partition("@")
            if at:
                named = {one: found for one, found in self.by_gallery.items() if one.lower() == gallery}
                if having := {one: found for one, found in named.items() if plain in found}:
                    return plain, having
            if having := {one: found for one, found in self.by_gallery.items() if text.lower() in found}:
                return text.lower(), having
        return None


def localai_obstacle(entry: BackendEntry) -> str:
    """Why a LocalAI worker cannot run the build; empty if it can."""
    has_manifest = entry.corral is not None and entry.corral.manifest is not None
    obstacle = find_localai_obstacle(entry.name, uri=entry.uri, manifest=has_manifest)
    if not obstacle and entry.gallery == CORRAL_GALLERY:
        return f"a LocalAI worker cannot read Corral's own gallery, which has {entry.name}"
    return obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCatalogue(Read):
    """Models of every gallery, in the order of the galleries."""

    entries: tuple[ModelEntry, ...]


def shipped(name: str) -> bytes:
    return resources.files("corral.artifacts.galleries.default_gallery").joinpath(name).read_bytes()


def read_backends(
    sources: GallerySources, galleries: tuple[GallerySettings, ...], cancel: CancelToken, *, ask: bool = True
) -> Catalogue:
    """Corral's own gallery and the configured ones. A gallery that fails is reported; the others are still read.
    Without `ask`, only cached copies are used."""

    def parse(content: bytes, gallery: GallerySettings) -> list[BackendEntry]:
        return parse_backends(content, gallery=gallery.name, url=gallery.url, from_network=_is_from_network(gallery))

    own = parse_backends(shipped("backends.yaml"), gallery=CORRAL_GALLERY, url="corral:backends")
    entries = list(own)
    statuses = [GalleryStatus(name=CORRAL_GALLERY, url="corral:backends", entries=len(own), age_s=0.0)]
    for gallery in galleries:
        found, status = _read_gallery(sources, gallery, parse, cancel if ask else None)
        entries += found
        statuses.append(status)
    return Catalogue(entries=tuple(entries), galleries=tuple(statuses))


def read_model_catalogue(
    sources: GallerySources, galleries: tuple[GallerySettings, ...], cancel: CancelToken, *, ask: bool = True
) -> ModelCatalogue:
    """The same for models: a gallery that fails is reported; the others are still read."""

    def parse(content: bytes, gallery: GallerySettings) -> list[ModelEntry]:
        return parse_models(content, gallery=gallery.name, from_network=_is_from_network(gallery))

    entries = parse_models(shipped("models.yaml"), gallery=CORRAL_GALLERY)
    statuses = [GalleryStatus(name=CORRAL_GALLERY, url="corral:models", entries=len(entries), age_s=0.0)]
    for gallery in galleries:
        found, status = _read_gallery(sources, gallery, parse, cancel if ask else None)
        entries += found
        statuses.append(status)
    return ModelCatalogue(entries=tuple(entries), galleries=tuple(statuses))


def _read_gallery(
    sources: GallerySources,
    gallery: GallerySettings,
    parse: Callable[[bytes, GallerySettings], list[Entry]],
    cancel: CancelToken | None,
) -> tuple[list[Entry], GalleryStatus]:
    try:
        text = sources.read(gallery, cancel) if cancel is not None else sources.read_kept(gallery)
        found = parse(text.content, gallery)
    except ArtifactError as error:
        return [], GalleryStatus(name=gallery.name, url=gallery.url, entries=0, age_s=0.0, problem=str(error))
    return found, GalleryStatus(
        name=gallery.name, url=text.url, entries=len(found), age_s=text.age_s, problem=text.stale_because
    )


def _is_from_network(gallery: GallerySettings) -> bool:
    return not all(names_local_file(url) for url in (gallery.url, *gallery.mirrors))


def signatures_for(
    galleries: tuple[GallerySettings, ...], catalogue: Catalogue, entry: BackendEntry
) -> SignaturePolicy | None:
    """The signatures that the entry's gallery requires, or another gallery that has the same image: listing an image
    twice must not be a way around them. A policy that cannot be enforced is rejected here, before any download."""
    offering = {entry.gallery, *(other.gallery for other in catalogue.entries if entry.uri and other.uri == entry.uri)}
    for gallery in sorted(galleries, key=lambda one: one.name != entry.gallery):
        if gallery.name in offering and gallery.verification is not None:
            check_policy(gallery.verification, f"Gallery {gallery.name}")
            return gallery.verification
    return None


def read_models(
    sources: GallerySources, galleries: tuple[GallerySettings, ...], cancel: CancelToken
) -> list[ModelEntry]:
    found = parse_models(shipped("models.yaml"), gallery=CORRAL_GALLERY)
    for gallery in galleries:
        try:
            text = sources.read(gallery, cancel)
        except ArtifactError:
            if not gallery.optional:
                raise
            continue
        found += parse_models(text.content, gallery=gallery.name, from_network=_is_from_network(gallery))
    return found


def read_model(sources: GallerySources, entry: ModelEntry, cancel: CancelToken) -> ResolvedModel:
    """The entry with its base file, whose address most entries share."""
    base: BaseFile | None = None
    if entry.url:
        if entry.from_network:
            refuse_local_files([entry.url], f"model {entry.name} of gallery {entry.gallery}")
        text = sources.read_any((entry.url,), cancel)
        base = parse_base(text.content)
    resolved = resolve_model(entry, base, base_from_network=not names_local_file(entry.url))
    if not resolved.backend and not resolved.files:
        raise BadGallery(f"Model {entry.name} names neither a backend nor files.")
    return resolved
