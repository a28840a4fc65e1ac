"""`/api/node/*`: registration, heartbeats and deregistration of workers."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from corral.bus.node_api import (
    INSTANCE_HEADER,
    HeartbeatExtras,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterReply,
    RegisterReplyExtras,
    RegisterRequest,
    decode_downloads,
    decode_heartbeat,
    decode_heartbeat_sender,
    decode_register,
)
from corral.controller.backends.peers import BlobPeers
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.core.errors import Conflict, Fenced, Forbidden, InvalidInput, NotFound, Unauthenticated
from corral.core.nodes.addresses import check_address
from corral.core.nodes.conditions import Condition, judge_clock
from corral.core.nodes.labels import check_labels
from corral.core.nodes.node import Node, NodeClaim, NodeId, NodeStatus, NodeType, NodeUsage
from corral.core.nodes.presence import Presence
from corral.core.nodes.registration import Refuse
from corral.core.sizes import parse_budget_bytes
from corral.frontend.api.replicas.view import ReplicaObject, view_replicas
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.bus_credentials import BusAuthority, announced_bus, enforce_quietly
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.http.json_response import MsgspecJson, SparseJson
from corral.frontend.http.middleware import client_address
from corral.frontend.nodes.heartbeats import HeartbeatBatcher
from corral.frontend.nodes.process_leases import LeaseGrants
from corral.frontend.nodes.site_downloads import SiteDownloadAnswers
from corral.frontend.nodes.store_clock import StoreClock
from corral.frontend.snapshots import Snapshot
from corral.settings.roles import FrontendSettings
from corral.store.access.api_keys import hash_secret
from corral.store.nodes.frontends import FRONTEND_LIVE_WITHIN_S
from corral.store.nodes.registration import Claimed, Heartbeat, may_act_for
from corral.store.serving.replicas import ReplicaStatus
from corral.store.stores import Stores
from corral.system import Clock, Ids
from corral.system.resolve_host import seen_from_here

log = structlog.get_logger()


def rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


READ_SECRETS_EVERY_S = 1.0
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class NodeRoutes:
    def __init__(
        self,
        settings: FrontendSettings,
        stores: Stores,
        authority: BusAuthority,
        tokens: JoinTokens,
        brute_force: BruteForceGuard,
        heartbeats: HeartbeatBatcher,
        process_leases: LeaseGrants,
        in_flight: InFlight,
        refused_messages: RefusedMessages,
        ids: Ids,
        notify_nodes: Callable[[], Awaitable[None]],
        clock: Clock,
        peers: BlobPeers,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._authority = authority
        self._tokens = tokens
        self._brute_force = brute_force
        self._heartbeats = heartbeats
        self._process_leases = process_leases
        self._in_flight = in_flight
        self._refused_messages = refused_messages
        self._secrets = Snapshot(stores.nodes.read_key_hashes, clock=clock, every_s=READ_SECRETS_EVERY_S)
        self._store_clock = StoreClock(stores.nodes.now_ms, clock)
        self._ids = ids
        self._downloads = SiteDownloadAnswers(stores, peers, clock)
        self._notify_nodes = notify_nodes
        self.router = APIRouter(prefix="/api/node", tags=["node"])
        add = self.router.add_api_route
        add("/register", self.register, methods=["POST"], status_code=201)
        add("/{node_id}/heartbeat", self.heartbeat, methods=["POST"])
        add("/{node_id}/downloads", self.downloads, methods=["POST"])
        add("/{node_id}/drain", self.drain, methods=["POST"])
        add("/{node_id}/resume", self.resume, methods=["POST"])
        add("/{node_id}/deregister", self.deregister, methods=["POST"])
        add("/{node_id}", self.deregister, methods=["DELETE"], operation_id="deregister_by_delete")
        add("/{node_id}/models", self.models, methods=["GET"], response_model=list[ReplicaObject])

    async def register(self, request: Request) -> Response:
        """Registers a worker, which needs a registration token or the node's own key."""
        bearer, address = _bearer(request), client_address(request.scope)
        joined = await self._tokens.holds(bearer)
        try:
            body = decode_register(await request.body())
        except InvalidInput:
            if joined:
                raise
            return self._reject_token(address)  # a client without a token learns nothing about the rest
        if joined and body.token is None and body.corral is None:
            raise Unauthenticated("registration token required")
        if body.token is not None and not await self._tokens.holds(body.token):
            self._brute_force.record_wrong(address)
            raise Unauthenticated(
                "invalid registration token; run `corral join-command` on the frontend's machine to get a valid one"
            )
        knows_key = body.corral is not None and bearer == body.corral.node_key
        if not joined and not knows_key:
            return self._reject_token(address)
        is_guess = not joined and body.token is None  # a token in the body was checked above
        if is_guess and self._brute_force.is_exhausted(address) and not await self._is_node_key(hash_secret(bearer)):
            return self._reject_token(address)
        claim = _claim(body, address)
        key, seed = self._bus_key(body)
        outcome = await self._stores.registration.register(
            claim,
            new_id=self._ids.uuid(),
            may_join=joined,
            auto_approve=self._settings.auto_approve or await self._tokens.approves(bearer),
            bus_key=key,
            bus_ttl_s=self._authority.ttl_s,
        )
        if isinstance(outcome, Refuse):
            if outcome.reason == "name_taken":
                await self._notify_nodes()
                raise Conflict(outcome.message)
            if is_guess:
                self._brute_force.record_wrong(address)
            raise Unauthenticated(outcome.message)
        if isinstance(outcome, Claimed):
            await self._notify_nodes()
            return MsgspecJson(self._reply_to_claim(body, outcome), status_code=201)
        if outcome.new_process:
            node = outcome.node
            log.info(
                "node.registered", node=node.name, id=node.id, address=address, epoch=node.epoch, status=node.status
            )
        await self._notify_nodes()
        if outcome.new_process:
            await enforce_quietly(self._authority, self._stores.bus_credentials)
        others = [row.url for row in await self._stores.frontends.read_live(within_s=FRONTEND_LIVE_WITHIN_S)]
        return MsgspecJson(self._reply(request, body, outcome.node, key, seed, others), status_code=201)

    def _reply_to_claim(self, body: RegisterRequest, outcome: Claimed) -> RegisterReply:
        """The machine waits for approval, under the id of its claim."""
        name, claim = outcome.node.name, outcome.claim
        waiting_for = (
            f"an administrator to confirm that this machine replaces the one registered as {name!r}: corral nodes"
            f" approve {name} --claim {claim.id[:8]}. If it does not replace it, start it with another name (--name)"
        )
        interval_s = self._settings.heartbeat_interval_s
        return RegisterReply(
            id=claim.id,
            name=name,
            node_type=outcome.node.node_type.value,
            status=NodeStatus.PENDING.value,
            created_at=rfc3339(claim.made_at),
            corral=(
                RegisterReplyExtras(epoch=0, heartbeat_interval_s=interval_s, waiting_for=waiting_for)
                if body.corral is not None
                else None
            ),
        )

    def _reject_token(self, address: str) -> JSONResponse:
        self._brute_force.record_wrong(address)
        return JSONResponse({"error": "invalid registration token"}, status_code=401)

    def _bus_key(self, body: RegisterRequest) -> tuple[str | None, str | None]:
        """The public key of the credential, and the seed if the frontend creates the key."""
        if self._authority.anonymous:
            return None, None
        if body.corral is not None:
            return body.corral.bus_public_key, None
        user = self._authority.new_user()
        return user.public, user.seed

    def _reply(
        self,
        request: Request,
        body: RegisterRequest,
        node: Node,
        key: str | None,
        seed: str | None,
        frontends: list[str],
    ) -> RegisterReply:
        credential = self._authority.issue(node, key, seed=seed) if key else None
        welcome = None
        if body.corral is not None:
            welcome = RegisterReplyExtras(
                epoch=node.epoch,
                bus_url=announced_bus(self._settings, request.url.hostname) if node.approved else None,
                bus_anonymous=self._authority.anonymous,
                credential_ttl_s=self._authority.ttl_s if credential else None,
                heartbeat_interval_s=self._settings.heartbeat_interval_s,
                frontends=frontends,
                grant=self._process_leases.find(node.id),
            )
        # A worker that has just registered was not seen on the bus yet. LocalAI's workers distinguish only "pending"
        # and any other status; `/api/nodes` shows the observed one.
        joining = node.approved and node.presence in (Presence.JOINING, Presence.GONE)
        return RegisterReply(
            id=node.id,
            name=node.name,
            node_type=node.node_type.value,
            status="healthy" if joining else node.status.value,
            created_at=rfc3339(node.created_at),
            nats_jwt=credential.jwt if credential else None,
            nats_user_seed=credential.seed if credential else None,
            corral=welcome,
        )

    async def heartbeat(self, node_id: str, request: Request) -> Response:
        """Records a heartbeat and answers with the process leases of the node."""
        bearer, address = _bearer(request), client_address(request.scope)
        joined = await self._check_sender(node_id, bearer, address)
        received, problem = _read_heartbeat(await request.body())
        outcome = await self._heartbeats.write(
            Heartbeat(
                node_id=NodeId(node_id),
                usage=NodeUsage(
                    available_vram=received.available_vram,
                    total_vram=received.total_vram,
                    available_ram=received.available_ram,
                    available_disk=received.available_disk,
                    total_disk=received.total_disk or None,
                    gpu_vendor=received.gpu_vendor or None,
                ),
                instance=received.corral.instance if received.corral else None,
                conditions=await self._conditions_of(received),
                secret_hash=hash_secret(bearer),
                joined=joined,
                source_address=address,
            )
        )
        if outcome.node is None:
            if not joined:
                self._brute_force.record_wrong(address)
            raise NotFound(f"unknown node {node_id!r}; register again")
        if outcome.denied:
            self._brute_force.record_wrong(address)
            raise Unauthenticated("the credential does not belong to this node")
        if outcome.fenced:
            raise Fenced(
                f"a newer process has registered as {outcome.node.name!r} (epoch {outcome.node.epoch}); this process"
                " must stop. If two machines use copies of one data directory, give one of them a new one."
            )
        if problem is not None:  # recorded only now, because the node is authenticated
            self._refused_messages.note(outcome.node.id, "heartbeat", problem)
        if outcome.node.presence not in (Presence.LIVE, Presence.LEFT):
            await self._notify_nodes()
        leases = self._process_leases.find(node_id) if outcome.node.key_hash is not None else None
        return MsgspecJson(HeartbeatReply(message="heartbeat received", corral=leases))

    async def _conditions_of(self, received: HeartbeatRequest) -> tuple[Condition, ...] | None:
        """The conditions that the worker reports, and the skew of its clock. None for LocalAI's workers."""
        reported = received.corral
        if reported is None or reported.conditions is None:
            return None
        found = [Condition(kind=one.kind, reason=one.reason, remedy=one.remedy) for one in reported.conditions]
        if reported.sent_at_ms is not None:
            skewed = judge_clock(reported.sent_at_ms, now_ms=await self._store_clock.now_ms())
            found += [skewed] if skewed is not None else []
        return tuple(found)

    async def downloads(self, node_id: str, request: Request) -> Response:
        """Answers a worker that needs blobs: which node of its site fetches each of them."""
        node = await self._authorise(node_id, request)
        if not node.approved or not node.speaks_corral:
            raise Forbidden("downloads are shared among approved Corral workers only")
        return MsgspecJson(await self._downloads.answer(node, decode_downloads(await request.body())))

    async def drain(self, node_id: str, request: Request) -> dict[str, str]:
        """Marks the node as draining because its worker stops."""
        await self._authorise(node_id, request)
        await self._stores.registration.set_draining(node_id, True)
        await self._notify_nodes()
        return {"message": "node set to draining"}

    async def resume(self, node_id: str, request: Request) -> dict[str, str]:
        """Ends a drain that the worker started."""
        await self._authorise(node_id, request)
        await self._stores.registration.set_draining(node_id, False)
        await self._notify_nodes()
        return {"message": "node resumed"}

    async def deregister(self, node_id: str, request: Request) -> dict[str, str]:
        """Marks the node as offline because its worker has stopped."""
        node = await self._authorise(node_id, request)
        await self._stores.registration.deregister(node_id)
        log.info("node.left", node=node.name, id=node.id)
        await self._notify_nodes()
        return {"message": "node set to offline"}

    async def models(self, node_id: str, request: Request) -> Response:
        """Lists the replicas of a node with their open requests on all frontends; a stopping worker waits for these."""
        node = await self._authorise(node_id, request)
        rows = await self._stores.replicas.read_of_node(node.id)
        # By their rows: the node itself knows whether the processes run.
        return SparseJson(view_replicas([ReplicaStatus(row, None) for row in rows], self._in_flight))

    async def _check_sender(self, node_id: str, bearer: str, address: str) -> bool:
        """Whether the client has a registration token. Rejects, before anything is written or batched, an id of the
        wrong form and, from an address with many wrong credentials, a key that belongs to no node."""
        joined = await self._tokens.holds(bearer)
        known = _ID.fullmatch(node_id) is not None
        if known and (joined or not self._brute_force.is_exhausted(address)):
            return joined
        if not joined and (not known or not await self._is_node_key(hash_secret(bearer))):
            self._brute_force.record_wrong(address)
        if not known:
            raise NotFound(f"unknown node {node_id[:64]!r}; register again")
        return joined

    async def _is_node_key(self, secret_hash: str) -> bool:
        return secret_hash in await self._secrets.get()

    async def _authorise(self, node_id: str, request: Request) -> Node:
        bearer, address = _bearer(request), client_address(request.scope)
        joined = await self._check_sender(node_id, bearer, address)
        try:
            node = await self._stores.nodes.read_one(node_id)
        except NotFound:
            if not joined:
                self._brute_force.record_wrong(address)
            raise
        if not may_act_for(node, secret_hash=hash_secret(bearer), joined=joined, source_address=address):
            self._brute_force.record_wrong(address)
            raise Forbidden("the credential does not belong to this node")
        if node.instance is not None and request.headers.get(INSTANCE_HEADER) != node.instance:
            raise Fenced(f"a newer process has registered as {node.name!r} (epoch {node.epoch})")
        return node


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("a registration token or node key is required: send `Authorization: Bearer <token>`")
    return token.strip()


def _read_heartbeat(body: bytes) -> tuple[HeartbeatRequest, InvalidInput | None]:
    """The heartbeat, and what is wrong with it. As in LocalAI, an unreadable one still shows that the node is there."""
    if not body.strip():
        return HeartbeatRequest(), None
    try:
        return decode_heartbeat(body), None
    except InvalidInput as error:
        problem = error
    try:
        sender = decode_heartbeat_sender(body).corral
        extras = HeartbeatExtras(instance=sender.instance) if sender is not None else None
        return HeartbeatRequest(corral=extras), problem
    except InvalidInput:
        return HeartbeatRequest(), problem


def _check_name(name: str) -> None:
    """Rejects names that would mislead a person or a shell. Names are never part of a bus subject."""
    if not name.strip() or any(not char.isprintable() for char in name):
        raise InvalidInput("name: must not be blank or contain control characters")
    if "*" in name or ">" in name or name.startswith("-"):
        raise InvalidInput(
            f"name: {name!r} contains a wildcard (* or >) or begins with a dash; choose another name (--name)"
        )
    if _ID.fullmatch(name.lower()):
        raise InvalidInput(f"name: {name!r} has the form of a node id; choose another name (--name)")


def _claim(body: RegisterRequest, source_address: str) -> NodeClaim:
    _check_name(body.name)
    for what, text in (("address", body.address), ("http_address", body.http_address)):
        if text:
            check_address(text, what=what, source_address=seen_from_here(source_address or None))
    try:
        node_type = NodeType(body.node_type or "backend")
    except ValueError:
        raise InvalidInput(f"node_type: {body.node_type!r} is neither backend nor agent") from None
    if node_type is NodeType.BACKEND and not body.address:
        raise InvalidInput("address: a backend node must state the address at which it is reachable")
    labels = body.labels or {}
    check_labels(labels)
    if body.vram_budget:
        parse_budget_bytes(body.vram_budget, total_bytes=body.total_vram or (1 << 40))
    known_disk = bool(body.total_disk)
    corral = body.corral
    return NodeClaim(
        name=body.name.strip(),
        node_type=node_type,
        address=body.address,
        http_address=body.http_address,
        key_hash=hash_secret(corral.node_key) if corral else None,
        instance=corral.instance if corral else None,
        total_vram=body.total_vram,
        available_vram=body.available_vram,
        total_ram=body.total_ram or None,
        available_ram=body.available_ram if body.total_ram else None,
        total_disk=body.total_disk if known_disk else None,
        available_disk=body.available_disk if known_disk else None,
        gpu_vendor=body.gpu_vendor or None,
        gpu_compute_capability=body.gpu_compute_capability or None,
        capability=body.capability or None,
        max_replicas_per_model=max(1, body.max_replicas_per_model or 1),
        vram_budget=body.vram_budget or None,
        labels=labels,
        facts=msgspec.json.encode(corral.facts).decode() if corral else None,
        registered_from=source_address or None,
    )
