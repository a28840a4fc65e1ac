"""Who may use the lane: every key that is in force, in memory, following the store."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from corral.bus.messages import KeysInForce
from corral.core.errors import CorralError, Forbidden, Unavailable
from corral.frontend.auth.rules import CLIENT_HEADER, Authorizer
from corral.store.access.api_keys import ApiKey, Scope
from corral.system.loops import wait_or_timeout

log = structlog.get_logger()

REFRESH_EVERY_S = 1.5
REFRESH_WITHIN_S = 2.0
UNCONFIRMED_S = 45.0
"""How long keys stay good while neither the store nor another frontend can say whether they are in force."""
# How long keys stay good while the store is away for every frontend. Nothing can be revoked there meanwhile, and what
# is loaded shall serve on through an outage of ten minutes.
GRACE_S = 900.0
REVOKED_MOST = 1000


@dataclass(frozen=True, slots=True)
class LaneKey:
    id: str | None
    name: str
    models: frozenset[str] | None = None
    """The models it may use; None is all."""
    admin: bool = False

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models

    @property
    def mark(self) -> str:
        """Differs where what it may do differs."""
        what = [self.admin, None if self.models is None else sorted(self.models)]
        return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:16]


NO_AUTH = LaneKey(None, "anyone (no-auth)", admin=True)


class KeyRing(Protocol):
    def find(self, authorization: bytes) -> LaneKey | None:
        """From memory. None: ask."""
        ...

    async def ask(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], method: str, address: str
    ) -> LaneKey | None:
        """From the store: a key made a moment ago elsewhere, or a browser's session. Raises RateLimited for those
        who guess, by their address."""
        ...


class KeySource(Protocol):
    async def read_ring(self) -> Mapping[str, ApiKey]:
        """By the hash of the secret, those in force."""
        ...


class Peers(Protocol):
    """Other frontends."""

    @property
    def connected(self) -> bool:
        """To the bus, where they are."""
        ...

    async def are_there(self) -> bool:
        """By the store's word, now."""
        ...

    async def ask(self, revoked: Sequence[str]) -> KeysInForce:
        """The first that answers, those that have the store first. All of them are told of `revoked`. Raises
        Unavailable or TimedOut."""
        ...


class NoPeers:
    connected = True

    async def are_there(self) -> bool:
        return False

    async def ask(self, revoked: Sequence[str]) -> KeysInForce:
        raise Unavailable("there is no other frontend")


def lane_key(key: ApiKey) -> LaneKey:
    models = None if key.models is None else frozenset(key.models)
    return LaneKey(key.id, key.name, models, admin=key.scope is Scope.ADMIN)


class StoredKeys:
    """The keys in force, kept current from the store; while that cannot be asked, from other frontends that can."""

    def __init__(self, source: KeySource, gate: Authorizer, *, auth: bool, peers: Peers | None = None) -> None:
        self._source = source
        self._peers = peers or NoPeers()
        self._had_peers = False
        self._poked = asyncio.Event()
        self._read_s: float | None = None
        """When what is in force was last known."""
        self._gate = gate
        self._auth = auth
        self._ring: dict[str, LaneKey] = {}
        self._by_id: dict[str, LaneKey] = {}
        self._seen: dict[bytes, LaneKey] = {}
        """Whole headers that were found good since the last refresh."""
        self._fresh_until_s = 0.0
        self._changes = 0
        self._reads_begun = 0
        self._newest_read = 0
        """The number of the read that memory is from."""
        self._revoked: dict[str, float] = {}
        """Ids of keys seen to be revoked, and until when others are told of it."""
        gate.listen(self._take)
        self._loop = asyncio.get_running_loop()

    def find(self, authorization: bytes) -> LaneKey | None:
        if self._loop.time() > self._fresh_until_s:
            return None
        key = self._seen.get(authorization)
        if key is not None:
            return key
        if authorization[:7].lower() != b"bearer ":
            return None
        key = self._ring.get(hashlib.sha256(authorization[7:].strip()).hexdigest())
        if key is not None:
            self._seen[authorization] = key
        return key

    async def ask(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], method: str, address: str
    ) -> LaneKey | None:
        if not self._auth:
            self._gate.check_page(headers)
            return NO_AUTH
        if not headers.get("authorization") and not cookies:
            return None
        principal = await self._gate.identify(headers, cookies, address)
        if principal is None:
            return None
        if principal.by_cookie and method not in ("GET", "HEAD") and CLIENT_HEADER not in headers:
            raise Forbidden(f"a browser session must send the header {CLIENT_HEADER} with every request")
        if principal.key_id is None:
            return LaneKey(None, principal.name, admin=principal.scope is Scope.ADMIN)
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
                keys = await self._read_ring()
                had_peers = await self._peers.are_there()
        except TimeoutError:
            raise Unavailable(f"the store did not tell the keys within {REFRESH_WITHIN_S:g} s") from None
        if number < self._newest_read:
            return  # another one began later and was done sooner: what it read is newer
        self._newest_read, self._had_peers = number, had_peers
        self._note_revoked(self._by_id.keys() - {key.id for key in keys.values()})  # no id is used twice
        self._keep({key_hash: lane_key(key) for key_hash, key in keys.items()})
        self._confirm(known=True)

    def _confirm(self, *, known: bool) -> None:
        """`known`: what is in force was told by who reads the store; else that nobody can have changed it."""
        now_s = self._loop.time()
        if known:
            self._read_s = now_s
        if self._read_s is not None:
            self._fresh_until_s = min(now_s + UNCONFIRMED_S, self._read_s + GRACE_S)

    def notify(self) -> None:
        """Some key changed, on this frontend or another."""
        self._poked.set()

    async def tell(self) -> KeysInForce:
        """What another frontend is told that has lost the store. It is read now: memory may be older than what who
        asks has read itself, and a key made between the two would seem revoked."""
        try:
            await self.refresh()
        except CorralError:
            return KeysInForce(from_store=False)
        return KeysInForce(from_store=True, keys={key_id: key.mark for key_id, key in self._by_id.items()})

    async def _ask_peers(self) -> None:
        newest = self._newest_read
        try:
            told = await self._peers.ask(self._revoked_lately())
        except CorralError:
            if self._peers.connected and not self._had_peers:
                self._confirm(known=False)  # nobody else is there who could have revoked one
            return
        if self._newest_read != newest:
            return  # the store was read meanwhile, maybe after who answered had read it
        if told.from_store:
            self._note_revoked(self._by_id.keys() - told.keys.keys())
            self._keep({h: key for h, key in self._ring.items() if key.id is None or told.keys.get(key.id) == key.mark})
        self._confirm(known=told.from_store)

    async def _read_ring(self) -> Mapping[str, ApiKey]:
        """Again where a key changed meanwhile: what was read may be older than that."""
        while True:
            before = self._changes
            keys = await self._source.read_ring()
            if before == self._changes:
                return keys

    def _take(self, changed: ApiKey) -> None:
        """Revoked or limited through this process: so from now on, not from the next refresh."""
        self._changes += 1
        others = {key_hash: key for key_hash, key in self._ring.items() if key.id != changed.id}
        if changed.revoked_at is None:
            own = lane_key(changed)
            others |= {key_hash: own for key_hash, key in self._ring.items() if key.id == changed.id}
        else:
            self._note_revoked([changed.id])
        self._keep(others)

    def drop(self, revoked: Sequence[str]) -> None:
        """Another frontend knows these to be revoked. The store may be away for both of us."""
        known = {*revoked} & {*self._by_id}
        if known:
            self._changes += 1
            self._note_revoked(known)
            self._keep({key_hash: key for key_hash, key in self._ring.items() if key.id not in known})

    def _keep(self, ring: dict[str, LaneKey]) -> None:
        self._ring = ring
        self._by_id = {key.id: key for key in ring.values() if key.id is not None}
        self._seen = {}

    def _note_revoked(self, ids: Iterable[str]) -> None:
        self._revoked |= dict.fromkeys(ids, self._loop.time() + GRACE_S)

    def _revoked_lately(self) -> list[str]:
        """As long as any frontend may honour a key from memory."""
        now_s = self._loop.time()
        self._revoked = {key_id: until_s for key_id, until_s in self._revoked.items() if until_s > now_s}
        return sorted(self._revoked, key=self._revoked.__getitem__)[-REVOKED_MOST:]

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
            await wait_or_timeout(self._poked, within_s=REFRESH_EVERY_S)
