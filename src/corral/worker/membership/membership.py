"""Belonging to a fleet: registering, waiting for approval, renewing the bus credential, beating, leaving."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from corral.bus.client import Credentials
from corral.bus.credentials import KeyPair, make_key, read_expiry_s, read_key
from corral.bus.node_api import (
    GrantedLeases,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterExtras,
    RegisterReply,
    RegisterRequest,
)
from corral.core.backoff import Backoff
from corral.core.errors import Conflict, CorralError, InvalidInput, Unauthenticated
from corral.settings.roles import WorkerSettings
from corral.system import Clock, Ids
from corral.worker.membership.conditions import Conditions
from corral.worker.membership.description import Machine
from corral.worker.membership.frontend_client import FrontendBusy

log = structlog.get_logger()

JOIN_RETRIES = Backoff(base_s=0.1, cap_s=15.0, jitter=0.5)
PENDING_POLL_S = 2.0
# A machine that was wiped comes back under the name of the one it was; that one counts as there for half a minute.
NAME_TAKEN_FOR_S = 75.0
RENEW_AT = 0.75
GOODBYE_WITHIN_S = 5.0
DRAIN_POLL_S = 1.0
RENEW_RETRY_S = 5.0


class Frontend(Protocol):
    def learn(self, urls: Sequence[str]) -> None: ...

    async def register(self, request: RegisterRequest, *, bearer: str) -> RegisterReply: ...

    async def heartbeat(self, node_id: str, beat: HeartbeatRequest, *, bearer: str) -> HeartbeatReply: ...

    async def drain(self, node_id: str, *, bearer: str, instance: str) -> None: ...

    async def count_in_flight(self, node_id: str, *, bearer: str, instance: str) -> int: ...

    async def deregister(self, node_id: str, *, bearer: str, instance: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Addresses:
    backends: str
    """Where backend processes listen: `host:port` of the first."""
    http: str


class Grants(Protocol):
    """Where it goes what a frontend says about the processes of this machine."""

    def now_s(self) -> float: ...

    async def grant(self, lengths_s: Mapping[str, float], revoked: Mapping[str, int], *, asked_s: float) -> None: ...

    async def prolong(self, *, asked_s: float) -> None: ...


@dataclass(slots=True)
class Member:
    """What the last registration gave us."""

    node_id: str
    epoch: int
    status: str
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
        frontend: Frontend,
        machine: Machine,
        addresses: Addresses,
        *,
        name: str,
        node_key: str,
        token: str | None,
        clock: Clock,
        ids: Ids,
        grants: Grants,
        conditions: Conditions,
    ) -> None:
        self._settings = settings
        self._grants, self._conditions = grants, conditions
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
        assert self._member is not None, "joined before anything asks"
        return self._member

    def credentials(self) -> Credentials | None:
        return self.member.credentials

    async def join(self) -> Member:
        """Register, as often as it takes, until this machine may work. Raises what only a person can mend."""
        # A key of its own for every identity: the one of a machine that was removed is void for good.
        self._bus_key = make_key("user", self._ids.seed())
        began_s = self._clock.monotonic_s()
        failures, announced = 0, ""
        while True:
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
                if member.status != "pending":
                    return member
                failures, problem = 0, member.waiting_for
            self.waiting_for = problem
            if problem != announced:
                announced = problem
                log.warning("worker.waiting", name=self._name, waiting_for=problem)
            await asyncio.sleep(
                self._wait_s(failures, pending=failures == 0 and problem.startswith("an administrator"))
            )
            failures += 1

    def _wait_s(self, failures: int, *, pending: bool) -> float:
        if pending:
            return PENDING_POLL_S
        return JOIN_RETRIES.delay_s(failures + 1, self._ids.draw())

    async def _register(self) -> Member:
        token = self._token
        request = self._request(token, await self._machine.read_again())
        asked_s = self._grants.now_s()
        try:
            reply = await self._frontend.register(request, bearer=self._node_key)
        except Unauthenticated:
            # Not known there: a first visit, a machine that was removed, or a LocalAI frontend.
            if token is None:
                raise
            reply = await self._frontend.register(request, bearer=token)
        if reply.corral is not None:
            self._frontend.learn(reply.corral.frontends)
            await self._take(reply.corral.grant, asked_s)
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
            key = read_key("user", reply.nats_user_seed, setting="the frontend's answer")
        ttl_s = corral.credential_ttl_s if corral else self._remaining_s(reply.nats_jwt)
        return Member(
            node_id=reply.id,
            epoch=corral.epoch if corral else 1,
            status=reply.status,
            bus_url=corral.bus_url if corral else None,
            bus_anonymous=corral.bus_anonymous if corral else reply.nats_jwt is None,
            heartbeat_interval_s=corral.heartbeat_interval_s if corral else None,
            bearer=self._node_key if corral else token or "",
            waiting_for=(corral.waiting_for if corral else None)
            or f"an administrator's approval: corral nodes approve {self._name}",
            speaks_corral=corral is not None,
            credentials=Credentials(reply.nats_jwt, key) if reply.nats_jwt else None,
            renew_after_s=ttl_s * RENEW_AT if ttl_s else None,
        )

    def _remaining_s(self, jwt: str | None) -> float | None:
        expires_s = read_expiry_s(jwt) if jwt else None
        return max(1.0, expires_s - self._clock.now_ms() / 1000) if expires_s else None

    async def renew(self) -> None:
        """A new credential for the same process."""
        member = await self._register()
        log.info("worker.credential_renewed", node=member.node_id)

    async def beat(self) -> None:
        """One heartbeat. Raises NotFound when nobody knows us any more, Fenced when a newer process has our name."""
        conditions = await self._conditions.read()
        beat = await self._machine.read_beat(self.instance, conditions, self._clock.now_ms())
        asked_s = self._grants.now_s()
        try:
            reply = await self._frontend.heartbeat(self.member.node_id, beat, bearer=self.member.bearer)
        except FrontendBusy:
            await self._grants.prolong(asked_s=asked_s)
            raise
        await self._take(reply.corral, asked_s)

    async def ask_once(self) -> None:
        """Whether a frontend still counts on us. Not while we are about to register, which asks by itself."""
        if self._member is not None:
            await self.beat()

    async def _take(self, grant: GrantedLeases | None, asked_s: float) -> None:
        if grant is not None:
            await self._grants.grant(grant.leases_s, grant.revoked, asked_s=asked_s)

    async def leave(self, *, backends_stay: bool) -> None:
        """Say good-bye, so that nobody waits for us. Best effort and bounded: the stop goes on whatever happens.

        Requests go to the backends, not through us: where those stay for the next worker nothing is cut off, and the
        sooner that one comes the better."""
        if self._member is None:
            return
        member = self.member
        try:
            async with asyncio.timeout(GOODBYE_WITHIN_S):
                await self._frontend.drain(member.node_id, bearer=member.bearer, instance=self.instance)
            if not (backends_stay and member.speaks_corral):
                await self._wait_for_requests(member)
            async with asyncio.timeout(GOODBYE_WITHIN_S):
                await self._frontend.deregister(member.node_id, bearer=member.bearer, instance=self.instance)
        except (CorralError, TimeoutError) as error:
            log.warning("worker.left_without_goodbye", error=str(error) or type(error).__name__)

    async def _wait_for_requests(self, member: Member) -> None:
        """Until the frontend counts no request on this machine any more, or the time for that is over."""
        try:
            async with asyncio.timeout(self._settings.drain_timeout_s):
                while True:
                    busy = await self._frontend.count_in_flight(
                        member.node_id, bearer=member.bearer, instance=self.instance
                    )
                    if not busy:
                        return
                    await asyncio.sleep(DRAIN_POLL_S)
        except TimeoutError:
            log.warning("worker.drain_cut_short", after_s=self._settings.drain_timeout_s)
