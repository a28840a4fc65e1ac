"""The valid API keys, kept in memory and refreshed from the store."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from corral.bus.messages import KeysInForce
from corral.core.access.key_limits import LimitsInForce, Priority
from corral.core.errors import CorralError, Forbidden, Unavailable
from corral.frontend.auth.rules import CLIENT_HEADER, Authorizer
from corral.store.access.api_keys import ApiKey, Scope
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

REFRESH_EVERY_S = 1.5
REFRESH_WITHIN_S = 2.0
UNCONFIRMED_S = 45.0
"""How long keys stay valid while neither the store nor another frontend can confirm them."""
# How long keys stay valid while no frontend reaches the store. Nothing can be revoked there meanwhile, and loaded
# models have to keep serving through an outage of ten minutes.
GRACE_S = 900.0
REVOKED_MAX = 1000


@dataclass(frozen=True, slots=True)
class ClientKey:
    id: str | None
    name: str
    models: frozenset[str] | None = None
    """The models that the key may use; None means all."""
    admin: bool = False
    limits: LimitsInForce | None = None
    """None: it has no limits."""
    priority: Priority = Priority.NORMAL

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models

    @property
    def mark(self) -> str:
        """Equal for keys with equal permissions."""
        permissions = [self.admin, None if self.models is None else sorted(self.models)]
        return hashlib.sha256(msgspec.json.encode(permissions)).hexdigest()[:16]


NO_AUTH = ClientKey(None, "anyone (no-auth)", admin=True)


class KeyLookup(Protocol):
    def find(self, authorization: bytes) -> ClientKey | None:
        """Finds a key in memory. None: call `authenticate`."""
        ...

    async def authenticate(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], method: str, address: str
    ) -> ClientKey | None:
        """Looks in the store: for a key that another frontend has just created, or a browser session. Raises
        RateLimited for addresses that present too many wrong credentials."""
        ...


class KeySource(Protocol):
    async def read_active_keys(self) -> Mapping[str, ApiKey]:
        """The valid keys, by the hash of their secret."""
        ...


class OtherFrontends(Protocol):
    """The other frontends of the cluster, which can confirm keys while this one does not reach the store."""

    @property
    def connected(self) -> bool:
        """Whether this frontend is connected to the bus."""
        ...

    async def are_there(self) -> bool:
        """Whether the store knows other frontends now."""
        ...

    async def request_keys(self, revoked: Sequence[str]) -> KeysInForce:
        """Asks all frontends for the valid keys, and tells them which keys are `revoked`. An answer from the store is
        preferred. Raises Unavailable or TimedOut."""
        ...


class NoOtherFrontends:
    connected = True

    async def are_there(self) -> bool:
        return False

    async def request_keys(self, revoked: Sequence[str]) -> KeysInForce:
        raise Unavailable("there is no other frontend")


def client_key(key: ApiKey) -> ClientKey:
    models = None if key.models is None else frozenset(key.models)
    return ClientKey(
        key.id,
        key.name,
        models,
        admin=key.scope is Scope.ADMIN,
        limits=key.in_force if key.in_force.has_any else None,
        priority=key.in_force.priority,
    )


class StoredKeys:
    """The valid keys, kept current from the store, or from other frontends while the store is unreachable."""

    def __init__(
        self, source: KeySource, authorizer: Authorizer, *, auth: bool, peers: OtherFrontends | None = None
    ) -> None:
        self._source = source
        self._peers = peers or NoOtherFrontends()
        self._had_peers = False
        self._changed = asyncio.Event()
        self._read_s: float | None = None
        """When the valid keys were last known."""
        self._authorizer = authorizer
        self._auth = auth
        self._by_hash: dict[str, ClientKey] = {}
        self._by_id: dict[str, ClientKey] = {}
        self._seen: dict[bytes, ClientKey] = {}
        """Authorization headers that were found valid since the last refresh."""
        self._fresh_until_s = 0.0
        self._changes = 0
        self._reads_begun = 0
        self._newest_read = 0
        """The number of the read that is in memory."""
        self._revoked: dict[str, float] = {}
        """Ids of revoked keys, and until when other frontends are told of them."""
        authorizer.listen(self._apply)
        self._loop = asyncio.get_running_loop()

    def find(self, authorization: bytes) -> ClientKey | None:
        if self._loop.time() > self._fresh_until_s:
            return None
        key = self._seen.get(authorization)
        if key is not None:
            return key
        if authorization[:7].lower() != b"bearer ":
            return None
        key = self._by_hash.get(hashlib.sha256(authorization[7:].strip()).hexdigest())
        if key is not None:
            self._seen[authorization] = key
        return key

    async def authenticate(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], method: str, address: str
    ) -> ClientKey | None:
        if not self._auth:
            self._authorizer.check_page(headers)
            return NO_AUTH
        if not headers.get("authorization") and not cookies:
            return None
        principal = await self._authorizer.identify(headers, cookies, address)
        if principal is None:
            return None
        if principal.by_cookie and method not in ("GET", "HEAD") and CLIENT_HEADER not in headers:
            raise Forbidden(f"a browser session must send the header {CLIENT_HEADER} with every request")
        if principal.key_id is None:
            return ClientKey(None, principal.name, admin=principal.scope is Scope.ADMIN)
        known = self._by_id.get(principal.key_id)
        if known is None:
            await self.refresh()
            known = self._by_id.get(principal.key_id)
        return known

    async def refresh(self) -> None:
        self._reads_begun += 1
        number = self._reads_begun
        try:
            async with asyncio.timeout(REFRESH_WITHIN_S):
                keys = await self._read_active_keys()
                had_peers = await self._peers.are_there()
        except TimeoutError:
            raise Unavailable(f"the store did not return the API keys within {REFRESH_WITHIN_S:g} s") from None
        if number < self._newest_read:
            return  # a read that began later has already finished: its result is newer
        self._newest_read, self._had_peers = number, had_peers
        self._record_revoked(self._by_id.keys() - {key.id for key in keys.values()})  # no id is used twice
        self._keep({key_hash: client_key(key) for key_hash, key in keys.items()})
        self._confirm(known=True)

    def _confirm(self, *, known: bool) -> None:
        """`known`: the valid keys come from the store. Otherwise nobody can have changed them."""
        now_s = self._loop.time()
        if known:
            self._read_s = now_s
        if self._read_s is not None:
            self._fresh_until_s = min(now_s + UNCONFIRMED_S, self._read_s + GRACE_S)

    def has_budgets(self) -> bool:
        return any(key.limits is not None and key.limits.has_budget for key in self._by_id.values())

    def notify(self) -> None:
        """A key changed, on this frontend or another."""
        self._changed.set()

    async def answer_peer(self) -> KeysInForce:
        """The answer for a frontend that lost the store. It is read from the store now: memory may be older than what
        the other frontend has read, and a key created between the two would seem revoked."""
        try:
            await self.refresh()
        except CorralError:
            return KeysInForce(from_store=False)
        return KeysInForce(from_store=True, keys={key_id: key.mark for key_id, key in self._by_id.items()})

    async def _ask_peers(self) -> None:
        newest = self._newest_read
        try:
            answer = await self._peers.request_keys(self._revoked_lately())
        except CorralError:
            if self._peers.connected and not self._had_peers:
                self._confirm(known=False)  # there is no other frontend that could have revoked a key
            return
        if self._newest_read != newest:
            return  # the store was read meanwhile, perhaps later than the other frontend read it
        if answer.from_store:
            self._record_revoked(self._by_id.keys() - answer.keys.keys())
            self._keep(
                {h: key for h, key in self._by_hash.items() if key.id is None or answer.keys.get(key.id) == key.mark}
            )
        self._confirm(known=answer.from_store)

    async def _read_active_keys(self) -> Mapping[str, ApiKey]:
        """Reads again if a key changed meanwhile: the result may be older than the change."""
        while True:
            before = self._changes
            keys = await self._source.read_active_keys()
            if before == self._changes:
                return keys

    def _apply(self, changed: ApiKey) -> None:
        """A key was revoked or limited through this process: this applies now, not from the next refresh."""
        self._changes += 1
        others = {key_hash: key for key_hash, key in self._by_hash.items() if key.id != changed.id}
        if changed.revoked_at is None:
            own = client_key(changed)
            others |= {key_hash: own for key_hash, key in self._by_hash.items() if key.id == changed.id}
        else:
            self._record_revoked([changed.id])
        self._keep(others)

    def drop(self, revoked: Sequence[str]) -> None:
        """Another frontend knows that these are revoked. Neither of the two may reach the store."""
        known = {*revoked} & {*self._by_id}
        if known:
            self._changes += 1
            self._record_revoked(known)
            self._keep({key_hash: key for key_hash, key in self._by_hash.items() if key.id not in known})

    def _keep(self, keys: dict[str, ClientKey]) -> None:
        self._by_hash = keys
        self._by_id = {key.id: key for key in keys.values() if key.id is not None}
        self._seen = {}

    def _record_revoked(self, ids: Iterable[str]) -> None:
        self._revoked |= dict.fromkeys(ids, self._loop.time() + GRACE_S)

    def _revoked_lately(self) -> list[str]:
        """The revoked keys that another frontend may still accept from memory."""
        now_s = self._loop.time()
        self._revoked = {key_id: until_s for key_id, until_s in self._revoked.items() if until_s > now_s}
        return sorted(self._revoked, key=self._revoked.__getitem__)[-REVOKED_MAX:]

    async def follow(self) -> None:
        failing = False
        while True:
            try:
                await self.refresh()
                failing = False
            except CorralError as error:
                if not failing:
                    log.warning("keys.refresh_failed", error=str(error))
                failing = True
                await self._ask_peers()
            await wait_or_timeout(self._changed, within_s=REFRESH_EVERY_S)
