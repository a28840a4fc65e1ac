"""`/api/node/*`: registration, heartbeats, good-bye."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import urlsplit

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
    decode_heartbeat,
    decode_heartbeat_sender,
    decode_register,
)
from corral.core.errors import Conflict, Fenced, Forbidden, InvalidInput, NotFound, Unauthenticated
from corral.core.nodes.addresses import check_address
from corral.core.nodes.conditions import Condition, judge_clock
from corral.core.nodes.labels import check_labels
from corral.core.nodes.node import Node, NodeClaim, NodeId, NodeStatus, NodeType, NodeUsage
from corral.core.nodes.presence import Presence
from corral.core.nodes.registration import Refuse
from corral.core.sizes import parse_budget_bytes
from corral.frontend.api.replicas.view import InFlight, show_replicas
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.bus_credentials import BusAuthority, enforce_quietly
from corral.frontend.auth.join_tokens import JoinTokens
from corral.frontend.http.json_response import MsgspecJson
from corral.frontend.http.middleware import client_address
from corral.frontend.nodes.heartbeats import BeatBatcher
from corral.frontend.nodes.process_leases import LeaseGrants
from corral.frontend.nodes.store_clock import StoreClock
from corral.frontend.snapshots import Snapshot
from corral.settings.roles import FrontendSettings
from corral.settings.values import is_loopback_host
from corral.store.access.api_keys import hash_secret
from corral.store.nodes.frontends import FRONTEND_LIVE_WITHIN_S
from corral.store.nodes.registration import Claimed, Heartbeat, speaks_for
from corral.store.serving.replicas import StandingReplica
from corral.store.stores import Stores
from corral.system import Clock, Ids
from corral.system.resolve_host import seen_from_here

log = structlog.get_logger()


def rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


READ_SECRETS_EVERY_S = 1.0
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class RegistrationRefused(Protocol):
    def note(self, sender: str, kind: str, error: InvalidInput) -> None: ...


class NodeRoutes:
    def __init__(
        self,
        settings: FrontendSettings,
        stores: Stores,
        authority: BusAuthority,
        tokens: JoinTokens,
        guesses: BruteForceGuard,
        beats: BeatBatcher,
        grants: LeaseGrants,
        in_flight: InFlight,
        refused: RegistrationRefused,
        ids: Ids,
        hint: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._authority = authority
        self._tokens = tokens
        self._guesses = guesses
        self._beats = beats
        self._grants = grants
        self._in_flight = in_flight
        self._refused = refused
        self._secrets = Snapshot(stores.nodes.read_key_hashes, clock=clock, every_s=READ_SECRETS_EVERY_S)
        self._store_clock = StoreClock(stores.nodes.now_ms, clock)
        self._ids = ids
        self._hint = hint
        self.router = APIRouter(prefix="/api/node", tags=["node"])
        add = self.router.add_api_route
        add("/register", self.register, methods=["POST"], status_code=201)
        add("/{node_id}/heartbeat", self.heartbeat, methods=["POST"])
        add("/{node_id}/drain", self.drain, methods=["POST"])
        add("/{node_id}/resume", self.resume, methods=["POST"])
        add("/{node_id}/deregister", self.deregister, methods=["POST"])
        add("/{node_id}", self.deregister, methods=["DELETE"], operation_id="deregister_by_delete")
        add("/{node_id}/models", self.models, methods=["GET"])

    async def register(self, request: Request) -> Response:
        bearer, address = _bearer(request), client_address(request.scope)
        joined = await self._tokens.holds(bearer)
        try:
            wanted = decode_register(await request.body())
        except InvalidInput:
            if joined:
                raise
            return self._unknown(address)  # who may not join is not told what else is wrong
        if joined and wanted.token is None and wanted.corral is None:
            raise Unauthenticated("registration token required")
        if wanted.token is not None and not await self._tokens.holds(wanted.token):
            self._guesses.note_wrong(address)
            raise Unauthenticated(
                "invalid registration token; `corral join-command`, where the frontend runs, prints the right one"
            )
        knows_key = wanted.corral is not None and bearer == wanted.corral.node_key
        if not joined and not knows_key:
            return self._unknown(address)
        is_guess = not joined and wanted.token is None  # a token that was shown is a right one here
        if is_guess and self._guesses.is_used_up(address) and not await self._is_node_key(hash_secret(bearer)):
            return self._unknown(address)
        claim = _claim(wanted, address)
        key, seed = self._bus_key(wanted)
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
                await self._hint()
                raise Conflict(outcome.message)
            if is_guess:
                self._guesses.note_wrong(address)
            raise Unauthenticated(outcome.message)
        if isinstance(outcome, Claimed):
            await self._hint()
            return MsgspecJson(self._reply_to_claim(wanted, outcome), status_code=201)
        if outcome.new_process:
            node = outcome.node
            log.info(
                "node.registered", node=node.name, id=node.id, address=address, epoch=node.epoch, status=node.status
            )
        await self._hint()
        if outcome.new_process:
            await enforce_quietly(self._authority, self._stores.bus_credentials)
        others = [row.url for row in await self._stores.frontends.read_live(within_s=FRONTEND_LIVE_WITHIN_S)]
        return MsgspecJson(self._reply(request, wanted, outcome.node, key, seed, others), status_code=201)

    def _reply_to_claim(self, wanted: RegisterRequest, outcome: Claimed) -> RegisterReply:
        """It waits like a stranger, under an id that is nobody's."""
        name, claim = outcome.node.name, outcome.claim
        waiting_for = (
            f"an administrator's word that this machine replaces the one registered as {name!r}: corral nodes approve"
            f" {name} --claim {claim.id[:8]}. If it does not, start it under another name (--name)"
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
                if wanted.corral is not None
                else None
            ),
        )

    def _unknown(self, address: str) -> JSONResponse:
        self._guesses.note_wrong(address)
        return JSONResponse({"error": "invalid registration token"}, status_code=401)

    def _bus_key(self, wanted: RegisterRequest) -> tuple[str | None, str | None]:
        """The public key the credential will be for, and the seed where we have to make it."""
        if self._authority.anonymous:
            return None, None
        if wanted.corral is not None:
            return wanted.corral.bus_public_key, None
        user = self._authority.new_user()
        return user.public, user.seed

    def _reply(
        self,
        request: Request,
        wanted: RegisterRequest,
        node: Node,
        key: str | None,
        seed: str | None,
        frontends: list[str],
    ) -> RegisterReply:
        credential = self._authority.issue(node, key, seed=seed) if key else None
        welcome = None
        if wanted.corral is not None:
            welcome = RegisterReplyExtras(
                epoch=node.epoch,
                bus_url=self._bus_url(request) if node.approved else None,
                bus_anonymous=self._authority.anonymous,
                credential_ttl_s=self._authority.ttl_s if credential else None,
                heartbeat_interval_s=self._settings.heartbeat_interval_s,
                frontends=frontends,
                grant=self._grants.find(node.id),
            )
        # A worker that has just registered cannot have been seen on the bus yet. LocalAI's workers know two answers
        # only, "pending" and anything else; what was observed is what `/api/nodes` shows.
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

    def _bus_url(self, request: Request) -> str:
        """As seen from the worker: where it reached us, unless told otherwise."""
        if self._settings.bus_for_workers is not None:
            return self._settings.bus_for_workers
        first = urlsplit(self._settings.bus.split(",")[0])
        reached = request.url.hostname
        if reached and is_loopback_host(first.hostname or "") and not is_loopback_host(reached):
            host = f"[{reached}]" if ":" in reached else reached
            return f"{first.scheme}://{host}:{first.port or 4222}"
        return f"{first.scheme}://{first.netloc.rpartition('@')[2]}"

    async def heartbeat(self, node_id: str, request: Request) -> Response:
        bearer, address = _bearer(request), client_address(request.scope)
        joined = await self._check_sender(node_id, bearer, address)
        beat, problem = _read_heartbeat(await request.body())
        outcome = await self._beats.beat(
            Heartbeat(
                node_id=NodeId(node_id),
                usage=NodeUsage(
                    available_vram=beat.available_vram,
                    total_vram=beat.total_vram,
                    available_ram=beat.available_ram,
                    available_disk=beat.available_disk,
                    total_disk=beat.total_disk or None,
                    gpu_vendor=beat.gpu_vendor or None,
                ),
                instance=beat.corral.instance if beat.corral else None,
                conditions=await self._conditions_of(beat),
                secret_hash=hash_secret(bearer),
                joined=joined,
                told_from=address,
            )
        )
        if outcome.node is None:
            if not joined:
                self._guesses.note_wrong(address)
            raise NotFound(f"there is no node {node_id!r}; register again")
        if outcome.denied:
            self._guesses.note_wrong(address)
            raise Unauthenticated("this credential does not belong to that node")
        if outcome.fenced:
            raise Fenced(
                f"a newer process has registered as {outcome.node.name!r} (epoch {outcome.node.epoch}); this one must"
                " stop. If two machines share a copied data directory, give one of them its own."
            )
        if problem is not None:  # known only now: the node itself has sent it
            self._refused.note(outcome.node.id, "heartbeat", problem)
        if outcome.node.presence not in (Presence.LIVE, Presence.LEFT):
            await self._hint()
        grant = self._grants.find(node_id) if outcome.node.speaks_corral else None
        return MsgspecJson(HeartbeatReply(message="heartbeat received", corral=grant))

    async def _conditions_of(self, beat: HeartbeatRequest) -> tuple[Condition, ...] | None:
        """What the worker tells, and what its clock shows. None where it tells nothing: LocalAI's do not."""
        told = beat.corral
        if told is None or told.conditions is None:
            return None
        found = [Condition(kind=one.kind, reason=one.reason, remedy=one.remedy) for one in told.conditions]
        if told.sent_at_ms is not None:
            skewed = judge_clock(told.sent_at_ms, now_ms=await self._store_clock.now_ms())
            found += [skewed] if skewed is not None else []
        return tuple(found)

    async def drain(self, node_id: str, request: Request) -> dict[str, str]:
        await self._authorise(node_id, request)
        await self._stores.registration.set_draining(node_id, True)
        await self._hint()
        return {"message": "node set to draining"}

    async def resume(self, node_id: str, request: Request) -> dict[str, str]:
        await self._authorise(node_id, request)
        await self._stores.registration.set_draining(node_id, False)
        await self._hint()
        return {"message": "node resumed"}

    async def deregister(self, node_id: str, request: Request) -> dict[str, str]:
        node = await self._authorise(node_id, request)
        await self._stores.registration.deregister(node_id)
        log.info("node.left", node=node.name, id=node.id)
        await self._hint()
        return {"message": "node set to offline"}

    async def models(self, node_id: str, request: Request) -> Response:
        """Replicas there, each with its open requests on all frontends: a worker that stops waits for them."""
        node = await self._authorise(node_id, request)
        rows = await self._stores.replicas.read_of_node(node.id)
        # As the rows say: whether its processes are there, the node itself knows best.
        return MsgspecJson(show_replicas([StandingReplica(row, None) for row in rows], self._in_flight))

    async def _check_sender(self, node_id: str, bearer: str, address: str) -> bool:
        """Whether a registration token was shown. Before anything is written or joins a batch: an id that is none of
        ours is refused, and so is, from an address that guesses, what is not some node's own secret."""
        joined = await self._tokens.holds(bearer)
        known = _ID.fullmatch(node_id) is not None
        if known and (joined or not self._guesses.is_used_up(address)):
            return joined
        if not joined and (not known or not await self._is_node_key(hash_secret(bearer))):
            self._guesses.note_wrong(address)
        if not known:
            raise NotFound(f"there is no node {node_id[:64]!r}; register again")
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
                self._guesses.note_wrong(address)
            raise
        if not speaks_for(node, secret_hash=hash_secret(bearer), joined=joined, told_from=address):
            self._guesses.note_wrong(address)
            raise Forbidden("this credential does not belong to that node")
        if node.instance is not None and request.headers.get(INSTANCE_HEADER) != node.instance:
            raise Fenced(f"a newer process speaks for {node.name!r} (epoch {node.epoch})")
        return node


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("a registration token or node key is needed: send `Authorization: Bearer <token>`")
    return token.strip()


def _read_heartbeat(body: bytes) -> tuple[HeartbeatRequest, InvalidInput | None]:
    """As LocalAI does: what cannot be read still says that the node is there. With what was wrong."""
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
    """Names are for people and never part of a subject; these would mislead a person or a shell."""
    if not name.strip() or any(not char.isprintable() for char in name):
        raise InvalidInput("name: must not be blank or have control characters")
    if "*" in name or ">" in name or name.startswith("-"):
        raise InvalidInput(f"name: {name!r} has a wildcard (* or >) or begins with a dash; choose another one (--name)")
    if _ID.fullmatch(name.lower()):
        raise InvalidInput(f"name: {name!r} looks like the id of a node; choose another one (--name)")


def _claim(wanted: RegisterRequest, told_from: str) -> NodeClaim:
    _check_name(wanted.name)
    for what, text in (("address", wanted.address), ("http_address", wanted.http_address)):
        if text:
            check_address(text, what=what, told_from=seen_from_here(told_from or None))
    try:
        node_type = NodeType(wanted.node_type or "backend")
    except ValueError:
        raise InvalidInput(f"node_type: {wanted.node_type!r} is neither backend nor agent") from None
    if node_type is NodeType.BACKEND and not wanted.address:
        raise InvalidInput("address: a backend node must tell where it can be reached")
    labels = wanted.labels or {}
    check_labels(labels)
    if wanted.vram_budget:
        parse_budget_bytes(wanted.vram_budget, total_bytes=wanted.total_vram or (1 << 40))
    known_disk = bool(wanted.total_disk)
    corral = wanted.corral
    return NodeClaim(
        name=wanted.name.strip(),
        node_type=node_type,
        address=wanted.address,
        http_address=wanted.http_address,
        key_hash=hash_secret(corral.node_key) if corral else None,
        instance=corral.instance if corral else None,
        total_vram=wanted.total_vram,
        available_vram=wanted.available_vram,
        total_ram=wanted.total_ram or None,
        available_ram=wanted.available_ram if wanted.total_ram else None,
        total_disk=wanted.total_disk if known_disk else None,
        available_disk=wanted.available_disk if known_disk else None,
        gpu_vendor=wanted.gpu_vendor or None,
        gpu_compute_capability=wanted.gpu_compute_capability or None,
        capability=wanted.capability or None,
        max_replicas_per_model=max(1, wanted.max_replicas_per_model or 1),
        vram_budget=wanted.vram_budget or None,
        labels=labels,
        facts=msgspec.json.encode(corral.facts).decode() if corral else None,
        registered_from=told_from or None,
    )
