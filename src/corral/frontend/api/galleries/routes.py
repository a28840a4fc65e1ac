"""The backends that galleries offer, and what each node would get."""

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Response

from corral.artifacts import GalleryStatus
from corral.frontend.api.galleries.offers import BackendOffer, Families, NodeOffer, Offers, is_development, matches
from corral.frontend.galleries import Galleries
from corral.frontend.http.json_response import MsgspecJson
from corral.store.backends.observed import ObservedStore
from corral.store.nodes.nodes import NodeStore


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryView:
    name: str
    url: str
    entries: int
    age_s: float
    """Time since the content was last known to be current."""
    problem: str
    """Why the last refresh failed; the entries are then from the copy that is `age_s` old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableBackends:
    backends: list[BackendOffer]
    nodes: list[NodeOffer]
    """The nodes that can run backends; each gets the variant for its capability."""
    galleries: list[GalleryView]


def view_galleries(galleries: Iterable[GalleryStatus]) -> list[GalleryView]:
    return [
        GalleryView(
            name=gallery.name,
            url=gallery.url,
            entries=gallery.entries,
            age_s=round(gallery.age_s, 1),
            problem=gallery.problem,
        )
        for gallery in galleries
    ]


class OfferReader:
    """Reads what the galleries offer to the nodes of this moment."""

    def __init__(self, galleries: Galleries, nodes: NodeStore, observed: ObservedStore) -> None:
        self.galleries = galleries
        self._nodes, self._observed = nodes, observed
        self._families = Families(())

    async def read(self) -> Offers:
        catalogue = await self.galleries.backends()
        if self._families.entries != catalogue.entries:
            self._families = Families(catalogue.entries)
        return Offers(catalogue, self._families, await self._nodes.read_all(), await self._observed.read_backends())


def gallery_routes(reader: OfferReader) -> APIRouter:
    router = APIRouter(tags=["galleries"])

    @router.get("/api/backends/available", response_model=AvailableBackends)
    async def list_offers(term: str = "", tag: str = "", name: str = "", everything: bool = False) -> Response:
        """Lists meta backends and backends that belong to none; with `everything` also the variants of meta backends
        and development builds."""
        offers = await reader.read()
        entries = [entry for entry in offers.catalogue.entries if matches(entry, term=term, tag=tag)]
        if name:
            entries = [offers.catalogue.find(name)]
        elif not everything:
            entries = [
                entry for entry in entries if not offers.families.is_variant(entry) and not is_development(entry)
            ]
        return MsgspecJson(
            AvailableBackends(
                backends=[offers.show(entry, name) for entry in entries],
                nodes=offers.show_nodes(),
                galleries=view_galleries(offers.catalogue.galleries),
            )
        )

    @router.post("/api/galleries/refresh")
    async def refresh() -> list[GalleryView]:
        """Refreshes every gallery now."""
        await reader.galleries.refresh()
        return view_galleries((await reader.galleries.backends()).galleries)

    return router
