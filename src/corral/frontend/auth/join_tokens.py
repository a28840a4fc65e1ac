"""Registration tokens, cached from the store for two seconds."""

from corral.store.access.api_keys import AccessStore, hash_secret
from corral.system import Clock

CACHED_S = 2.0


class JoinTokens:
    def __init__(self, store: AccessStore, own: str, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._hashes: dict[str, bool] = {}
        self._read_at_s: float | None = None
        self.own = own
        """The token in the join command of this frontend."""

    async def holds(self, token: str) -> bool:
        return hash_secret(token) in await self._current()

    async def approves(self, token: str) -> bool:
        return (await self._current()).get(hash_secret(token), False)

    async def _current(self) -> dict[str, bool]:
        now_s = self._clock.monotonic_s()
        if self._read_at_s is None or now_s - self._read_at_s > CACHED_S:
            self._hashes = await self._store.read_join_tokens()
            self._read_at_s = now_s
        return self._hashes
