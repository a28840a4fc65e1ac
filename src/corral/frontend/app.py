"""Assembles the frontend's routes into one application."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from corral import __version__
from corral.artifacts.settings import NetworkPolicy
from corral.controller.backends.create_operation import Fleet
from corral.controller.backends.peers import BlobPeers
from corral.controller.backends.policy_controller import PolicyReconciler
from corral.controller.backends.progress import LiveProgress
from corral.controller.backends.resolve import Resolver
from corral.controller.backends.slow_builds import SlowBuilds
from corral.controller.backends.upgrades import UpgradeCheck
from corral.controller.loads.coordinator import LoadCoordinator
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.frontend.api.access.limits import limit_routes
from corral.frontend.api.access.routes import KEYS, audit_routes, key_routes, session_routes
from corral.frontend.api.access.usage import usage_routes
from corral.frontend.api.backends.deletes import DependentsReader, delete_routes
from corral.frontend.api.backends.listing import FleetListing, fleet_listing_routes
from corral.frontend.api.backends.nodes import node_backend_routes
from corral.frontend.api.backends.routes import backend_routes
from corral.frontend.api.backends.slow_builds import slow_build_routes
from corral.frontend.api.backends.upgrades import upgrade_routes
from corral.frontend.api.backends.why import backend_why_routes
from corral.frontend.api.docs.routes import docs_routes
from corral.frontend.api.galleries.routes import OfferReader, gallery_routes
from corral.frontend.api.localai.backends import localai_backend_routes
from corral.frontend.api.localai.galleries import localai_gallery_routes
from corral.frontend.api.localai.jobs import job_routes
from corral.frontend.api.localai.log_socket import log_socket_routes
from corral.frontend.api.models.endpoints import endpoint_routes
from corral.frontend.api.models.history import history_routes
from corral.frontend.api.models.loads import load_routes
from corral.frontend.api.models.routes import model_routes
from corral.frontend.api.models.sources import model_source_routes
from corral.frontend.api.nodes.logs import log_routes
from corral.frontend.api.nodes.routes import node_routes
from corral.frontend.api.ollama.routes import ollama_routes
from corral.frontend.api.operations.open_operations import OpenOperations
from corral.frontend.api.operations.routes import operation_routes
from corral.frontend.api.policies.routes import policy_routes
from corral.frontend.api.public_routes.routes import public_route_routes
from corral.frontend.api.replicas.routes import replica_routes
from corral.frontend.api.replicas.scheduling import scheduling_routes
from corral.frontend.api.rollouts.routes import rollout_routes
from corral.frontend.api.status.explain import Explain, explain_routes
from corral.frontend.api.status.metrics import metrics_routes
from corral.frontend.api.status.overview import overview_routes
from corral.frontend.api.status.routes import FrontendInfo, status_routes
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.bus_credentials import BusAuthority
from corral.frontend.auth.denial_log import DenialLog
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.auth.rules import Authorizer
from corral.frontend.galleries import Galleries
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.key_meters import KeyMeters
from corral.frontend.gateway.traffic import FleetTraffic
from corral.frontend.http.compression import CompressedListings
from corral.frontend.http.errors import install_error_handlers
from corral.frontend.http.event_feed import LiveFeed
from corral.frontend.http.middleware import AuthMiddleware
from corral.frontend.http.proxies import TrustedProxies
from corral.frontend.http.static_ui import WebUi
from corral.frontend.models.check import ConfigChecks
from corral.frontend.models.downloads import Downloads
from corral.frontend.models.gallery import ModelGallery
from corral.frontend.models.install import ModelInstaller
from corral.frontend.nodes.heartbeats import HeartbeatBatcher
from corral.frontend.nodes.process_leases import LeaseGrants
from corral.frontend.nodes.routes import NodeRoutes
from corral.store.stores import Stores
from corral.system import Clock, Disk, Ids
from corral.system.worker_logs import WorkerLogs


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """What the routes need, created by the frontend role."""

    info: FrontendInfo
    stores: Stores
    authority: BusAuthority
    authorizer: Authorizer
    brute_force: BruteForceGuard
    denials: DenialLog
    tokens: JoinTokens
    heartbeats: HeartbeatBatcher
    process_leases: LeaseGrants
    feed: LiveFeed
    galleries: Galleries
    refused_messages: RefusedMessages
    clock: Clock
    ids: Ids
    disk: Disk
    notify: Callable[[str], Awaitable[None]]
    """Tells all frontends that rows of a kind changed."""
    notify_nodes: Callable[[], Awaitable[None]]
    """Tells all frontends that nodes changed."""
    notify_routes: Callable[[], Awaitable[None]]
    """Tells all frontends that models, or their replicas, changed."""
    model_gallery: ModelGallery
    fleet: Fleet
    resolver: Resolver
    progress: LiveProgress
    listing: FleetListing
    open_operations: OpenOperations
    policies: PolicyReconciler
    upgrades: UpgradeCheck
    loads: LoadCoordinator
    in_flight: InFlight
    key_meters: KeyMeters
    explain: Explain
    metrics: Callable[[], str]
    traffic: FleetTraffic
    logs: WorkerLogs
    peers: BlobPeers


def build_api(components: Components) -> FastAPI:
    api = FastAPI(
        title="Corral",
        version=__version__,
        description="Runs AI models on a fleet of heterogeneous machines.",
        docs_url=None,
        redoc_url=None,
    )
    install_error_handlers(api)
    for router in (docs_routes(api.openapi), *_routers(components)):
        # Not include_router: it builds every route a second time, and adds a layer to search at each request.
        api.router.routes += router.routes
    return api


def _routers(components: Components) -> Iterator[APIRouter]:
    stores, settings = components.stores, components.info.settings
    yield NodeRoutes(
        settings,
        stores,
        components.authority,
        components.tokens,
        components.brute_force,
        components.heartbeats,
        components.process_leases,
        components.in_flight,
        components.refused_messages,
        components.ids,
        components.notify_nodes,
        components.clock,
        components.peers,
    ).router
    yield scheduling_routes(stores, components.ids, components.loads, components.notify_routes)
    yield replica_routes(stores, components.in_flight, components.notify_routes)
    yield load_routes(stores, components.loads, components.notify_routes)
    yield public_route_routes(stores, components.notify_routes)
    yield endpoint_routes(stores, components.in_flight, components.ids, components.notify_routes)
    slow = SlowBuilds(components.galleries, components.resolver, stores.nodes, stores.observed)
    yield explain_routes(stores, components.in_flight, components.explain, slow)
    yield slow_build_routes(slow)
    yield log_routes(stores, components.logs)
    yield log_socket_routes(stores, components.logs)
    yield node_routes(
        stores,
        components.authority,
        components.in_flight,
        components.notify_nodes,
        silent_after_s=settings.suspect_after_s,
    )
    yield key_routes(stores, components.authorizer, components.ids, components.notify)
    yield limit_routes(stores, components.authorizer, components.key_meters, components.notify, kind=KEYS)
    yield session_routes(stores, components.authorizer, components.ids)
    yield audit_routes(stores)
    yield usage_routes(stores)
    yield metrics_routes(components.metrics, stores, slow)
    yield status_routes(components.info, stores, components.feed, components.tokens)
    yield overview_routes(components.traffic, stores.nodes)
    yield operation_routes(stores, components.open_operations, components.progress, components.notify)
    yield rollout_routes(stores, components.notify)
    yield from _backend_routers(components, slow)
    # Last: the name of a model may have slashes, so its routes would match paths of the others.
    yield from _model_routers(components)


def _backend_routers(components: Components, slow: SlowBuilds) -> Iterator[APIRouter]:
    stores, fleet = components.stores, components.fleet
    dependents = DependentsReader(stores, fleet)
    offers = OfferReader(components.galleries, stores.nodes, stores.observed)
    yield job_routes(stores.operations, components.progress)
    yield delete_routes(stores, fleet, dependents)
    yield backend_routes(fleet, stores.nodes)
    yield localai_backend_routes(stores, fleet, dependents, components.galleries)
    yield upgrade_routes(fleet, components.upgrades)
    yield node_backend_routes(stores, fleet, dependents)
    yield fleet_listing_routes(components.listing)
    yield backend_why_routes(stores, components.policies, components.upgrades, slow)
    yield policy_routes(stores, components.listing, components.notify)
    yield gallery_routes(offers)
    yield localai_gallery_routes(offers, stores.operations, components.upgrades, stores.models)


def _model_routers(components: Components) -> Iterator[APIRouter]:
    stores, settings = components.stores, components.info.settings
    downloads = Downloads(
        NetworkPolicy(
            trusted_hosts=frozenset(host.lower() for host in settings.trusted_hosts),
            plain_http_hosts=frozenset(host.lower() for host in settings.plain_http_hosts),
        )
    )
    checks = ConfigChecks(downloads, stores.observed, components.galleries)
    installer = ModelInstaller(stores.models, components.model_gallery, checks, components.notify_routes)
    yield ollama_routes(stores.models, installer, components.loads, components.notify_routes)
    yield model_source_routes(
        stores.models,
        components.model_gallery,
        installer,
        checks,
        components.disk,
        settings.models_directory,
        components.notify_routes,
    )
    yield history_routes(stores.models, checks, components.notify_routes)
    yield model_routes(stores.models, checks, components.notify_routes)


def build_app(components: Components) -> ASGIApp:
    api = AuthMiddleware(
        build_api(components),
        authorizer=components.authorizer,
        body_limit_bytes=components.info.settings.body_limit_bytes,
        denials=components.denials,
        proxies=TrustedProxies(components.info.settings.trusted_proxies),
        cors_origin=components.info.settings.cors_origin,
    )
    return WebUi(CompressedListings(api))
