"""What can be installed: LocalAI's listings, and Corral's own, which say what each machine would get."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query, Response

from corral.core.backends.operations import Operation, OperationState
from corral.core.backends.upgrades import Upgrade
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend
from corral.frontend.api.galleries.offers import BackendOffer, Families, NodeOffer, Offers, is_development, matches
from corral.frontend.api.galleries.service import Galleries
from corral.frontend.api.localai.gallery_listing import (
    ITEMS,
    InWork,
    PageRequest,
    list_available,
    list_installed,
    list_known,
    list_page,
    show_galleries,
    task_of,
)
from corral.frontend.http.json_response import MsgspecJson


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


class Operations(Protocol):
    async def read_open(self) -> list[Operation]: ...


class Upgrades(Protocol):
    async def read(self) -> Mapping[str, Upgrade]: ...


class GalleryDesk:
    """Puts galleries, machines and what is under way together for each request."""

    def __init__(
        self, galleries: Galleries, nodes: Nodes, observed: Observed, operations: Operations, upgrades: Upgrades
    ) -> None:
        self.galleries = galleries
        self._nodes = nodes
        self._observed = observed
        self._operations = operations
        self._upgrades = upgrades
        self._families = Families(())

    async def offers(self) -> Offers:
        catalogue = await self.galleries.backends()
        if self._families.entries != catalogue.entries:
            self._families = Families(catalogue.entries)
        return Offers(catalogue, self._families, await self._nodes.read_all(), await self._observed.read_backends())

    async def in_work(self) -> dict[str, InWork]:
        """By backend: the operation that is at it."""
        running = [op for op in await self._operations.read_open() if op.state is OperationState.RUNNING]
        return {op.backend: InWork(job_id=op.id, task=task_of(op)) for op in running}

    async def upgrades(self) -> dict[str, str]:
        """By backend: the version there is to upgrade to; empty when the gallery does not name it."""
        return {name: upgrade.nodes[0].available_version for name, upgrade in (await self._upgrades.read()).items()}


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
        return list_page(await desk.offers(), wanted, await desk.in_work())

    @router.get("/backends")
    async def installed() -> list[dict[str, Any]]:
        return list_installed(await desk.offers(), await desk.upgrades())

    @router.get("/backends/available")
    async def available() -> list[dict[str, Any]]:
        return list_available(await desk.offers())

    @router.get("/backends/known")
    async def known() -> list[dict[str, Any]]:
        return list_known(await desk.offers())

    @router.get("/backends/galleries")
    async def galleries() -> list[dict[str, Any]]:
        return show_galleries((await desk.galleries.backends()).galleries)
