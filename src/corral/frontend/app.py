"""Puts the frontend's routes together."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from corral import __version__
from corral.artifacts.settings import NetworkPolicy
from corral.frontend.api.access.routes import audit_routes, key_routes, session_routes
from corral.frontend.api.access.usage import usage_routes
from corral.frontend.api.backends.deletes import delete_routes
from corral.frontend.api.backends.dependents import BackendUses
from corral.frontend.api.backends.listing import FleetListing
from corral.frontend.api.backends.nodes import node_backend_routes
from corral.frontend.api.backends.routes import backend_routes
from corral.frontend.api.backends.service import FleetService, Progress, UpgradeChecks
from corral.frontend.api.backends.upgrades import upgrade_routes
from corral.frontend.api.galleries.routes import GalleryDesk, gallery_routes
from corral.frontend.api.galleries.service import Galleries
from corral.frontend.api.localai.jobs import job_routes
from corral.frontend.api.models.loads import Desk, load_routes
from corral.frontend.api.models.routes import model_routes
from corral.frontend.api.models.sources import model_source_routes
from corral.frontend.api.nodes.logs import Logs, log_routes, log_socket_routes
from corral.frontend.api.nodes.routes import node_routes
from corral.frontend.api.operations.open_operations import OpenOperations
from corral.frontend.api.operations.routes import operation_routes
from corral.frontend.api.policies.routes import policy_routes
from corral.frontend.api.replicas.routes import replica_routes
from corral.frontend.api.replicas.scheduling import scheduling_routes
from corral.frontend.api.replicas.view import InFlight
from corral.frontend.api.status.explain import Explain, why_routes
from corral.frontend.api.status.metrics import metrics_routes
from corral.frontend.api.status.overview import Pulses, overview_routes
from corral.frontend.api.status.routes import FrontendInfo, status_routes
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.bus_credentials import BusAuthority
from corral.frontend.auth.denial_log import DenialLog
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.auth.rules import Authorizer
from corral.frontend.http.compression import CompressedListings
from corral.frontend.http.errors import install_error_handlers
from corral.frontend.http.event_feed import LiveFeed
from corral.frontend.http.middleware import AuthMiddleware
from corral.frontend.http.proxies import TrustedProxies
from corral.frontend.http.static_ui import WebUi
from corral.frontend.models.check import ConfigChecks
from corral.frontend.models.downloads import Downloads
from corral.frontend.models.gallery import ModelGallery
from corral.frontend.nodes.heartbeats import BeatBatcher
from corral.frontend.nodes.process_leases import LeaseGrants
from corral.frontend.nodes.routes import NodeRoutes, RegistrationRefused
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the routes need, opened by the role's main."""

    me: FrontendInfo
    stores: Stores
    authority: BusAuthority
    gate: Authorizer
    guesses: BruteForceGuard
    refusals: DenialLog
    tokens: JoinTokens
    beats: BeatBatcher
    grants: LeaseGrants
    feed: LiveFeed
    galleries: Galleries
    refused: RegistrationRefused
    clock: Clock
    ids: Ids
    hint: Callable[[], Awaitable[None]]
    """Tells all frontends that node rows changed."""
    disk: Disk
    model_gallery: ModelGallery
    hint_routes: Callable[[], Awaitable[None]]
    """Tells all frontends that models, or where they are served, changed."""
    hint_of: Callable[[str], Awaitable[None]]
    """The same of another kind of rows."""
    fleet: FleetService
    progress: Progress
    listing: FleetListing
    open_operations: OpenOperations
    upgrades: UpgradeChecks
    desk: Desk
    in_flight: InFlight
    explain: Explain
    """Why a request went where it went."""
    metrics: Callable[[], str]
    pulse: Pulses
    logs: Logs


def build_api(parts: Parts) -> FastAPI:
    api = FastAPI(
        title="Corral",
        version=__version__,
        description="Runs AI models on a herd of unlike machines.",
        docs_url=None,
        redoc_url=None,
    )
    install_error_handlers(api)
    for router in _routers(parts):
        # As they are: an included router is a layer to search at each request, and has its routes built a second time.
        api.router.routes += router.routes
    return api


def _routers(parts: Parts) -> Iterator[APIRouter]:
    stores, settings = parts.stores, parts.me.settings
    yield NodeRoutes(
        settings,
        stores,
        parts.authority,
        parts.tokens,
        parts.guesses,
        parts.beats,
        parts.grants,
        parts.in_flight,
        parts.refused,
        parts.ids,
        parts.hint,
        parts.clock,
    ).router
    yield scheduling_routes(stores, parts.ids, parts.desk, parts.hint_routes)
    yield replica_routes(stores, parts.in_flight, parts.hint_routes)
    yield load_routes(stores, parts.desk, parts.hint_routes)
    yield why_routes(stores, parts.in_flight, parts.explain)
    yield log_routes(stores, parts.logs)
    yield log_socket_routes(stores, parts.logs)
    yield node_routes(stores, parts.authority, parts.in_flight, parts.hint, silent_after_s=settings.suspect_after_s)
    yield key_routes(stores, parts.gate, parts.ids, parts.hint_of)
    yield session_routes(stores, parts.gate, parts.ids)
    yield audit_routes(stores)
    yield usage_routes(stores)
    yield metrics_routes(parts.metrics, stores.nodes)
    yield status_routes(parts.me, stores, parts.feed, parts.tokens)
    yield overview_routes(parts.pulse, stores.nodes)
    yield operation_routes(stores, parts.open_operations, parts.progress, parts.hint_of)
    yield job_routes(stores.operations, parts.progress)
    uses = BackendUses(stores, parts.fleet)
    yield delete_routes(parts.fleet, stores.nodes, uses)
    yield backend_routes(parts.fleet, stores.nodes, parts.galleries)
    yield upgrade_routes(parts.fleet, parts.upgrades)
    yield node_backend_routes(stores, parts.fleet, parts.listing, uses)
    yield policy_routes(stores, parts.listing, parts.hint_of)
    desk = GalleryDesk(parts.galleries, stores.nodes, stores.observed, stores.operations, parts.upgrades)
    yield gallery_routes(desk)
    # Last: a model's name may hold slashes, so its routes would take what others offer below it.
    downloads = Downloads(
        NetworkPolicy(
            trusted_hosts=frozenset(host.lower() for host in settings.trusted_hosts),
            plain_http_hosts=frozenset(host.lower() for host in settings.plain_http_hosts),
        )
    )
    checks = ConfigChecks(downloads, stores.observed, parts.galleries)
    yield model_source_routes(
        stores.models, parts.model_gallery, checks, parts.disk, settings.models_directory, parts.hint_routes
    )
    yield model_routes(stores, checks, parts.hint_routes)


def build_app(parts: Parts) -> ASGIApp:
    edge = AuthMiddleware(
        build_api(parts),
        gate=parts.gate,
        body_limit_bytes=parts.me.settings.body_limit_bytes,
        refusals=parts.refusals,
        proxies=TrustedProxies(parts.me.settings.trusted_proxies),
    )
    return WebUi(CompressedListings(edge))
