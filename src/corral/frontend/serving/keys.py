"""Who may use the lane: every key that is in force, in memory, following the store."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from corral.core.errors import CorralError, Forbidden, Unavailable
from corral.frontend.access import CLIENT_HEADER, Gate
from corral.store.access import ApiKey, Scope

log = structlog.get_logger()

REFRESH_EVERY_S = 1.5
REFRESH_WITHIN_S = 2.0
# How long keys stay good while the store cannot be asked. Nothing can be revoked there meanwhile, and what is loaded
# shall serve on through an outage of ten minutes.
GRACE_S = 900.0


@dataclass(frozen=True, slots=True)
class LaneKey:
    id: str | None
    name: str
    models: frozenset[str] | None = None
    """The models it may use; None is all."""
    admin: bool = False

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models


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


def lane_key(key: ApiKey) -> LaneKey:
    models = None if key.models is None else frozenset(key.models)
    return LaneKey(key.id, key.name, models, admin=key.scope is Scope.ADMIN)


class StoredKeys:
    def __init__(self, source: KeySource, gate: Gate, *, auth: bool) -> None:
        self._source = source
        self._gate = gate
        self._auth = auth
        self._ring: dict[str, LaneKey] = {}
        self._by_id: dict[str, LaneKey] = {}
        self._seen: dict[bytes, LaneKey] = {}
        """Whole headers that were found good since the last refresh."""
        self._fresh_until_s = 0.0
        self._changes = 0
        gate.listen(self._take)
        self._loop = asyncio.get_running_loop()

    def find(self, authorization: bytes) -> LaneKey | None:
        key = self._seen.get(authorization)
        if key is not None:
            return key
        if authorization[:7].lower() != b"bearer " or self._loop.time() > self._fresh_until_s:
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
        try:
            async with asyncio.timeout(REFRESH_WITHIN_S):
                keys = await self._read_ring()
        except TimeoutError:
            raise Unavailable(f"the store did not tell the keys within {REFRESH_WITHIN_S:g} s") from None
        self._keep({key_hash: lane_key(key) for key_hash, key in keys.items()})
        self._fresh_until_s = self._loop.time() + GRACE_S

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
        self._keep(others)

    def _keep(self, ring: dict[str, LaneKey]) -> None:
        self._ring = ring
        self._by_id = {key.id: key for key in ring.values() if key.id is not None}
        self._seen = {}

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
                if self._loop.time() > self._fresh_until_s:
                    self._seen = {}
            await asyncio.sleep(REFRESH_EVERY_S)
