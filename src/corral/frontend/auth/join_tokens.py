"""Registration tokens: the set in force, read from the store and at most two seconds old."""

from typing import Protocol

from corral.store.access.api_keys import hash_secret
from corral.system import Clock

REMEMBER_S = 2.0


class TokenStore(Protocol):
    async def read_join_tokens(self) -> dict[str, bool]: ...


class JoinTokens:
    def __init__(self, store: TokenStore, own: str, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._hashes: dict[str, bool] = {}
        self._read_at_s: float | None = None
        self.own = own
        """The one this frontend tells people to join with."""

    async def holds(self, token: str) -> bool:
        return hash_secret(token) in await self._current()

    async def approves(self, token: str) -> bool:
        return (await self._current()).get(hash_secret(token), False)

    async def _current(self) -> dict[str, bool]:
        now_s = self._clock.monotonic_s()
        if self._read_at_s is None or now_s - self._read_at_s > REMEMBER_S:
            self._hashes = await self._store.read_join_tokens()
            self._read_at_s = now_s
        return self._hashes
