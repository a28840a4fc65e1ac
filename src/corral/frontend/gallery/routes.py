"""What can be installed: LocalAI's listings, and Corral's own, which say what each machine would get."""

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query, Response

from corral.artifacts import ModelEntry
from corral.core.errors import NotFound
from corral.core.nodes import Node, NodeId
from corral.core.observed import ObservedBackend
from corral.core.sizes import read_size_bytes
from corral.frontend.answers import MsgspecJson
from corral.frontend.gallery.listing import (
    ITEMS,
    PageRequest,
    list_available,
    list_installed,
    list_known,
    list_page,
    show_galleries,
)
from corral.frontend.gallery.offers import BackendOffer, Families, NodeOffer, Offers, is_development, matches
from corral.frontend.gallery.service import Galleries


class Nodes(Protocol):
    async def read_all(self) -> list[Node]: ...


class Observed(Protocol):
    async def read_backends(self) -> dict[NodeId, list[ObservedBackend]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryView:
    name: str
    url: str
    entries: int
    age_s: float
    """Since its text was last known to be current."""
    problem: str
    """Why it could not be asked; what is shown of it then is the copy kept `age_s` ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableBackends:
    backends: list[BackendOffer]
    nodes: list[NodeOffer]
    """The machines on offer; each gets of a backend the variant of its capability."""
    galleries: list[GalleryView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOffer:
    id: str
    name: str
    gallery: str
    description: str
    tags: list[str]
    license: str
    icon: str
    urls: list[str]
    size_bytes: int | None
    backend: str
    """Empty when only its base file, which is read at installation, names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableModels:
    models: list[ModelOffer]
    galleries: list[GalleryView]


class GalleryDesk:
    """Puts galleries and machines together for each request."""

    def __init__(self, galleries: Galleries, nodes: Nodes, observed: Observed) -> None:
        self.galleries = galleries
        self._nodes = nodes
        self._observed = observed
        self._families = Families(())

    async def offers(self) -> Offers:
        catalogue = await self.galleries.backends()
        if self._families.entries != catalogue.entries:
            self._families = Families(catalogue.entries)
        return Offers(catalogue, self._families, await self._nodes.read_all(), await self._observed.read_backends())


def gallery_routes(desk: GalleryDesk) -> APIRouter:
    router = APIRouter(tags=["galleries"])

    @router.get("/api/backends/available", response_model=AvailableBackends)
    async def list_offers(term: str = "", tag: str = "", name: str = "", everything: bool = False) -> Response:
        """Families and single backends; with `everything` also their parts and development builds."""
        offers = await desk.offers()
        entries = [entry for entry in offers.catalogue.entries if matches(entry, term=term, tag=tag)]
        if name:
            entries = [offers.catalogue.find(name)]
        elif not everything:
            entries = [entry for entry in entries if not offers.families.is_part(entry) and not is_development(entry)]
        return MsgspecJson(
            {
                "backends": [offers.show(entry) for entry in entries],
                "nodes": offers.show_nodes(),
                "galleries": show_galleries(offers.catalogue.galleries),
            }
        )

    @router.get("/api/models/available", response_model=AvailableModels)
    async def list_models(term: str = "", tag: str = "", name: str = "") -> Response:
        catalogue = await desk.galleries.models()
        found = [_show_model(entry) for entry in catalogue.entries if _model_matches(entry, term, tag)]
        if name:
            found = [model for model in found if name.lower() in (model.name.lower(), model.id.lower())]
            if not found:
                raise NotFound(f"no gallery has a model named {name!r}")
        return MsgspecJson({"models": found, "galleries": show_galleries(catalogue.galleries)})

    @router.post("/api/galleries/refresh")
    async def refresh() -> list[GalleryView]:
        """Asks every gallery for news now."""
        await desk.galleries.refresh()
        return [GalleryView(**shown) for shown in show_galleries((await desk.galleries.backends()).galleries)]

    _add_localai_routes(router, desk)
    return router


def _add_localai_routes(router: APIRouter, desk: GalleryDesk) -> None:
    @router.get("/api/backends")
    async def page(
        term: str = "",
        tag: str = "",
        page: Annotated[int, Query(ge=1)] = 1,
        items: Annotated[int, Query(ge=1)] = ITEMS,
        sort: str = "",
        order: str = "asc",
    ) -> dict[str, Any]:
        wanted = PageRequest(term=term, tag=tag, page=page, items=items, sort=sort, order=order)
        return list_page(await desk.offers(), wanted, {})

    @router.get("/backends")
    async def installed() -> list[dict[str, Any]]:
        return list_installed(await desk.offers(), {})

    @router.get("/backends/available")
    async def available() -> list[dict[str, Any]]:
        return list_available(await desk.offers())

    @router.get("/backends/known")
    async def known() -> list[dict[str, Any]]:
        return list_known(await desk.offers())

    @router.get("/backends/galleries")
    async def galleries() -> list[dict[str, Any]]:
        return show_galleries((await desk.galleries.backends()).galleries)


def _model_matches(entry: ModelEntry, term: str, tag: str) -> bool:
    if tag and tag.lower() not in {each.lower() for each in entry.tags}:
        return False
    text = " ".join((entry.name, entry.description, *entry.tags, entry.gallery)).lower()
    return all(word in text for word in term.lower().split())


def _show_model(entry: ModelEntry) -> ModelOffer:
    config = entry.config_file if isinstance(entry.config_file, dict) else {}
    return ModelOffer(
        id=f"{entry.gallery}@{entry.name}",
        name=entry.name,
        gallery=entry.gallery,
        description=entry.description.strip(),
        tags=entry.tags,
        license=entry.license,
        icon=entry.icon,
        urls=entry.urls,
        size_bytes=read_size_bytes(entry.size) if entry.size else None,
        backend=str(entry.overrides.get("backend") or config.get("backend") or entry.backend),
    )
