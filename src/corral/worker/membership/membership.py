"""The worker's membership in a fleet: registration, approval, credential renewal, heartbeats, leaving."""

import asyncio
from dataclasses import dataclass, field

import structlog

from corral.bus.client import Credentials
from corral.bus.credentials import KeyPair, make_key, read_expiry_s, read_key
from corral.bus.node_api import (
    DownloadsReply,
    DownloadsRequest,
    GrantedLeases,
    RegisterExtras,
    RegisterReply,
    RegisterRequest,
)
from corral.core.backoff import Backoff
from corral.core.errors import Conflict, CorralError, InvalidInput, NotFound, Unauthenticated
from corral.core.nodes.node import NodeStatus
from corral.settings.roles import WorkerSettings
from corral.system import Clock, Ids
from corral.worker.membership.conditions import Conditions
from corral.worker.membership.description import Machine
from corral.worker.membership.frontend_client import FrontendBusy, FrontendClient
from corral.worker.membership.process_leases import ProcessLeaseEnforcer

log = structlog.get_logger()

JOIN_RETRIES = Backoff(base_s=0.1, cap_s=15.0, jitter=0.5)
PENDING_POLL_S = 2.0
# A reinstalled machine registers under its previous name, which stays reserved for half a minute.
NAME_TAKEN_FOR_S = 75.0
RENEW_AT = 0.75
LEAVE_STEP_WITHIN_S = 5.0
DRAIN_POLL_S = 1.0
RENEW_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class Addresses:
    backends: str
    """`host:port` of the first backend process."""
    http: str


@dataclass(slots=True)
class Member:
    """The result of the last registration."""

    node_id: str
    epoch: int
    status: str
    is_pending: bool
    """Whether an administrator has to approve the node first."""
    bus_url: str | None
    bus_anonymous: bool
    heartbeat_interval_s: float | None
    bearer: str = field(repr=False)
    waiting_for: str = ""
    speaks_corral: bool = True
    credentials: Credentials | None = None
    renew_after_s: float | None = None


class Membership:
    def __init__(
        self,
        settings: WorkerSettings,
        frontend: FrontendClient,
        machine: Machine,
        addresses: Addresses,
        *,
        name: str,
        node_key: str,
        token: str | None,
        clock: Clock,
        ids: Ids,
        leases: ProcessLeaseEnforcer,
        conditions: Conditions,
    ) -> None:
        self._settings = settings
        self._leases, self._conditions = leases, conditions
        self._frontend = frontend
        self._machine = machine
        self._addresses = addresses
        self._name = name
        self._node_key = node_key
        self._token = token
        self._clock = clock
        self._ids = ids
        self._bus_key: KeyPair = make_key("user", ids.seed())
        self.instance = ids.uuid()
        self.waiting_for = "the frontend"
        self._member: Member | None = None

    @property
    def member(self) -> Member:
        assert self._member is not None, "join() has returned"
        return self._member

    def credentials(self) -> Credentials | None:
        return self.member.credentials

    async def join(self) -> Member:
        """Registers, with retries, until this node is approved. Raises errors that a retry cannot fix."""
        # A new key for every identity: the key of a removed node stays revoked.
        self._bus_key = make_key("user", self._ids.seed())
        began_s = self._clock.monotonic_s()
        failures, announced = 0, ""
        while True:
            is_pending = False
            try:
                member = await self._register()
            except (Unauthenticated, InvalidInput):
                raise
            except Conflict as error:
                if self._clock.monotonic_s() - began_s > NAME_TAKEN_FOR_S:
                    raise
                problem = str(error)
            except CorralError as error:
                problem = str(error)
            else:
                if not member.is_pending:
                    return member
                failures, problem, is_pending = 0, member.waiting_for, True
            self.waiting_for = problem
            if problem != announced:
                announced = problem
                log.warning("worker.waiting", name=self._name, waiting_for=problem)
            await asyncio.sleep(PENDING_POLL_S if is_pending else self._retry_delay_s(failures))
            failures += 1

    def _retry_delay_s(self, failures: int) -> float:
        return JOIN_RETRIES.delay_s(failures + 1, self._ids.draw())

    async def _register(self) -> Member:
        token = self._token
        request = self._request(token, await self._machine.read_again())
        asked_s = self._leases.now_s()
        try:
            reply = await self._frontend.register(request, bearer=self._node_key)
        except Unauthenticated:
            # The node key is unknown: a new node, a removed node, or a LocalAI frontend.
            if token is None:
                raise
            reply = await self._frontend.register(request, bearer=token)
        if reply.corral is not None:
            self._frontend.learn(reply.corral.frontends)
            await self._apply(reply.corral.grant, asked_s)
        self._member = self._read(reply, token)
        return self._member

    def _request(self, token: str | None, machine: Machine) -> RegisterRequest:
        hardware, settings = machine.hardware, self._settings
        labels = {"node.replica-slots": str(settings.max_replicas_per_model), **settings.labels}
        vram = hardware.vram_total_bytes
        return RegisterRequest(
            name=self._name,
            address=self._addresses.backends,
            http_address=self._addresses.http,
            token=token,
            total_vram=vram if vram is not None or hardware.gpus else 0,
            available_vram=hardware.vram_free_bytes if hardware.vram_free_bytes is not None or hardware.gpus else 0,
            total_ram=hardware.memory.total_bytes,
            available_ram=hardware.memory.available_bytes,
            total_disk=hardware.disk.total_bytes,
            available_disk=hardware.disk.available_bytes,
            gpu_vendor=hardware.gpu_vendor,
            gpu_compute_capability=hardware.compute_capability,
            capability=machine.capability.token,
            labels=labels,
            max_replicas_per_model=settings.max_replicas_per_model,
            vram_budget=settings.vram_budget,
            corral=RegisterExtras(
                node_key=self._node_key,
                instance=self.instance,
                bus_public_key=self._bus_key.public,
                facts=machine.facts(),
            ),
        )

    def _read(self, reply: RegisterReply, token: str | None) -> Member:
        corral = reply.corral
        key = self._bus_key
        if reply.nats_user_seed:
            key = read_key("user", reply.nats_user_seed, setting="the frontend's reply")
        ttl_s = corral.credential_ttl_s if corral else self._remaining_s(reply.nats_jwt)
        return Member(
            node_id=reply.id,
            epoch=corral.epoch if corral else 1,
            status=reply.status,
            is_pending=reply.status == NodeStatus.PENDING,
            bus_url=corral.bus_url if corral else None,
            bus_anonymous=corral.bus_anonymous if corral else reply.nats_jwt is None,
            heartbeat_interval_s=corral.heartbeat_interval_s if corral else None,
            bearer=self._node_key if corral else token or "",
            waiting_for=self._approval_by(reply),
            speaks_corral=corral is not None,
            credentials=Credentials(reply.nats_jwt, key) if reply.nats_jwt else None,
            renew_after_s=ttl_s * RENEW_AT if ttl_s else None,
        )

    def _approval_by(self, reply: RegisterReply) -> str:
        if reply.corral is None:
            return f"an administrator of the LocalAI frontend, who must approve the node {self._name}"
        return reply.corral.waiting_for or f"an administrator's approval: corral nodes approve {self._name}"

    def _remaining_s(self, jwt: str | None) -> float | None:
        expires_s = read_expiry_s(jwt) if jwt else None
        return max(1.0, expires_s - self._clock.now_ms() / 1000) if expires_s else None

    async def renew(self) -> None:
        """Gets a new bus credential for this worker process."""
        member = await self._register()
        log.info("worker.credential_renewed", node=member.node_id)

    async def heartbeat(self) -> None:
        """Sends one heartbeat. Raises NotFound if the node was removed, Fenced if a newer process has its identity."""
        conditions = await self._conditions.read()
        request = await self._machine.read_heartbeat(self.instance, conditions, self._clock.now_ms())
        asked_s = self._leases.now_s()
        try:
            reply = await self._frontend.heartbeat(self.member.node_id, request, bearer=self.member.bearer)
        except FrontendBusy:
            await self._leases.prolong(asked_s=asked_s)
            raise
        await self._apply(reply.corral, asked_s)

    async def claim_downloads(self, request: DownloadsRequest) -> DownloadsReply:
        """Which node of the site fetches each blob. Raises NotFound if nobody coordinates downloads here."""
        member = self._member
        if member is None or not member.speaks_corral:
            raise NotFound("there is no Corral frontend that coordinates downloads")
        return await self._frontend.claim_downloads(
            member.node_id, request, bearer=member.bearer, instance=self.instance
        )

    async def heartbeat_if_joined(self) -> None:
        """Renews the leases with a heartbeat. Does nothing before the first registration, which renews them, too."""
        if self._member is not None:
            await self.heartbeat()

    async def _apply(self, grant: GrantedLeases | None, asked_s: float) -> None:
        if grant is not None:
            await self._leases.grant(grant.leases_s, grant.revoked, asked_s=asked_s)

    async def leave(self, *, backends_stay: bool) -> None:
        """Drains and deregisters the node. Best effort and bounded: the worker stops in any case.

        Requests go directly to the backends. If these keep running for the next worker, no request is interrupted and
        there is no need to wait for requests."""
        if self._member is None:
            return
        member = self.member
        try:
            async with asyncio.timeout(LEAVE_STEP_WITHIN_S):
                await self._frontend.drain(member.node_id, bearer=member.bearer, instance=self.instance)
            if not (backends_stay and member.speaks_corral):
                await self._wait_for_requests(member)
            async with asyncio.timeout(LEAVE_STEP_WITHIN_S):
                await self._frontend.deregister(member.node_id, bearer=member.bearer, instance=self.instance)
        except (CorralError, TimeoutError) as error:
            log.warning("worker.deregistration_failed", error=str(error) or type(error).__name__)

    async def _wait_for_requests(self, member: Member) -> None:
        """Waits until the frontend counts no requests on this node, or the drain times out."""
        try:
            async with asyncio.timeout(self._settings.drain_timeout_s):
                while True:
                    in_flight = await self._frontend.count_in_flight(
                        member.node_id, bearer=member.bearer, instance=self.instance
                    )
                    if not in_flight:
                        return
                    await asyncio.sleep(DRAIN_POLL_S)
        except TimeoutError:
            log.warning("worker.drain_timed_out", after_s=self._settings.drain_timeout_s)
