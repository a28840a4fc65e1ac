"""Issues and revokes the nodes' bus credentials."""

from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from corral.bus.client import BusOptions, Credentials, connect_bus
from corral.bus.credentials import (
    KeyPair,
    account_jwt,
    frontend_permissions,
    make_key,
    node_permissions,
    read_key,
    user_jwt,
)
from corral.bus.subjects import FRONTEND_INBOX, frontend_inbox
from corral.core.errors import CorralError, InvalidSetting, Unavailable
from corral.core.nodes.node import Node
from corral.settings.roles import FrontendSettings
from corral.settings.values import is_loopback_host
from corral.system import Clock, Ids

log = structlog.get_logger()

CLAIMS_UPDATE = "$SYS.REQ.CLAIMS.UPDATE"
REVOKE_AHEAD_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class NodeCredential:
    jwt: str = field(repr=False)
    seed: str | None = field(repr=False)
    """Only when the worker has no key of its own."""


@dataclass(frozen=True, slots=True)
class BusKeys:
    account: KeyPair
    operator: KeyPair | None = None
    system: KeyPair | None = None


def read_bus_keys(settings: FrontendSettings) -> BusKeys | None:
    """The keys of the bus; None only when the settings allow an anonymous bus."""
    if settings.bus_account_seed is None:
        if not settings.insecure_anonymous_bus:
            raise InvalidSetting(
                "bus_account_seed is not set, and the message bus needs credentials. Set CORRAL_BUS_ACCOUNT_SEED_FILE,"
                " create credentials with `corral bus init`, or run `corral up`."
            )
        return None
    operator, system = settings.bus_operator_seed, settings.bus_system_seed
    return BusKeys(
        read_key("account", settings.bus_account_seed.get_secret_value(), setting="bus_account_seed"),
        read_key("operator", operator.get_secret_value(), setting="bus_operator_seed") if operator else None,
        read_key("account", system.get_secret_value(), setting="bus_system_seed") if system else None,
    )


def announced_bus(settings: FrontendSettings, reached: str | None) -> str:
    """The address of the bus for a worker: by the host at which it reached us, unless a setting has it."""
    if settings.bus_for_workers is not None:
        return settings.bus_for_workers
    first = urlsplit(settings.bus.split(",")[0])
    if reached and is_loopback_host(first.hostname or "") and not is_loopback_host(reached):
        host = f"[{reached}]" if ":" in reached else reached
        return f"{first.scheme}://{host}:{first.port or 4222}"
    return f"{first.scheme}://{first.netloc.rpartition('@')[2]}"


class RevocationSource(Protocol):
    async def read_revoked(self) -> dict[str, int]: ...


class BusAuthority:
    def __init__(self, settings: FrontendSettings, keys: BusKeys | None, *, clock: Clock, ids: Ids) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._ids = ids
        self._own = make_key("user", ids.seed())
        self._pushed: dict[str, int] = {}

    @property
    def anonymous(self) -> bool:
        return self._keys is None

    @property
    def ttl_s(self) -> float:
        return self._settings.worker_jwt_ttl_s

    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000

    def own_credentials(self) -> Credentials | None:
        """The credentials of this frontend, created at every (re)connect."""
        if self._keys is None:
            return None
        jwt = user_jwt(
            self._keys.account,
            self._own.public,
            name="corral-frontend",
            permissions=frontend_permissions(),
            now_s=self._now_s(),
            expires_s=None,
        )
        return Credentials(jwt, self._own)

    def bus_options(self, frontend_id: str) -> BusOptions:
        return BusOptions(
            servers=tuple(self._settings.bus.split(",")),
            name=f"corral-frontend-{frontend_id}",
            inbox=f"{FRONTEND_INBOX}.*.{frontend_id}",
            inbox_for=lambda subject: frontend_inbox(frontend_id, subject),
            credentials=self.own_credentials,
            ca_file=self._settings.bus_ca_file,
        )

    def new_user(self) -> KeyPair:
        return make_key("user", self._ids.seed())

    def issue(self, node: Node, public_key: str, *, seed: str | None) -> NodeCredential | None:
        if self._keys is None or not node.approved:
            return None
        now_s = self._now_s()
        jwt = user_jwt(
            self._keys.account,
            public_key,
            name=f"corral-{node.node_type}-{node.id}",
            permissions=node_permissions(node.id),
            now_s=now_s,
            expires_s=now_s + int(self.ttl_s),
        )
        return NodeCredential(jwt, seed)

    async def enforce(self, revocations: RevocationSource, *, anew: bool = False) -> None:
        """Sends the list of revoked credentials to the bus, unless the bus has it already.

        `anew`: send it again, because the bus may have restarted and lost it."""
        if anew:
            self._pushed = {}
        keys = self._keys
        if keys is None or keys.operator is None or keys.system is None:
            return
        revoked = await revocations.read_revoked()
        while not revoked.items() <= self._pushed.items():
            await self._push(keys, keys.operator, keys.system, revoked)
            self._pushed = revoked
            # Another frontend may have sent a newer list at the same time, which ours has now replaced.
            revoked = await revocations.read_revoked()

    async def _push(self, keys: BusKeys, operator: KeyPair, system: KeyPair, revoked: dict[str, int]) -> None:
        now_s = self._now_s()
        user = make_key("user", self._ids.seed())
        jwt = user_jwt(system, user.public, name="corral-claims", permissions=None, now_s=now_s, expires_s=now_s + 60)
        options = BusOptions(
            servers=tuple(self._settings.bus.split(",")),
            name="corral-claims",
            inbox=f"_INBOX.{user.public}",
            inbox_for=lambda _: f"_INBOX.{user.public}",
            credentials=lambda: Credentials(jwt, user),
            ca_file=self._settings.bus_ca_file,
        )
        # A revocation applies to credentials issued before its time. No key is used for a second node, so that time may
        # be in the future: it then also covers credentials from a frontend whose clock is fast.
        ahead = {key: at_s + REVOKE_AHEAD_S for key, at_s in revoked.items()}
        claims = account_jwt(operator, keys.account.public, name="corral", now_s=now_s, revocations=ahead)
        async with connect_bus(options) as bus:
            answer = await bus.request(CLAIMS_UPDATE, claims.encode(), within_s=5.0)
        if b'"error"' in answer:
            raise Unavailable(
                f"the message bus rejected the list of revoked credentials: {answer.decode(errors='replace')}"
            )
        log.info("bus.revocations_pushed", count=len(revoked))


async def enforce_quietly(authority: BusAuthority, revocations: RevocationSource, *, anew: bool = False) -> None:
    """For callers whose own work is done: an error is logged, and the next health check retries."""
    try:
        await authority.enforce(revocations, anew=anew)
    except CorralError as error:
        log.warning("bus.revocation_failed", error=str(error))
