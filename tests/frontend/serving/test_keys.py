"""Keys in memory, and the store they follow."""

import asyncio
from collections.abc import Mapping

from corral.core.errors import Unavailable
from corral.frontend.access import Gate
from corral.frontend.guesses import Guesses
from corral.frontend.serving.keys import StoredKeys
from corral.store.access import ApiKey, Scope, hash_secret
from corral.system import SystemClock
from sim.loop import run_virtually

SECRET = "corral-secret"
HEADER = f"Bearer {SECRET}".encode()
KEY = ApiKey(
    id="k", name="one", scope=Scope.USER, hint="corral-", created_at=0, created_by="", revoked_at=None, models=None
)


class Store:
    def __init__(self) -> None:
        self.is_away = False

    async def read_ring(self) -> Mapping[str, ApiKey]:
        if self.is_away:
            raise Unavailable("the store is away")
        return {hash_secret(SECRET): KEY}

    async def find_key(self, key_hash: str) -> ApiKey | None:
        return (await self.read_ring()).get(key_hash)

    async def find_session(self, token_hash: str) -> ApiKey | None:
        return None


async def keys_through_an_outage() -> tuple[bool, bool]:
    """Whether the key is good after ten minutes without the store, and after an hour."""
    store, clock = Store(), SystemClock()
    keys = StoredKeys(store, Gate(store, Guesses(clock), clock=clock, auth=True), auth=True)
    following = asyncio.ensure_future(keys.follow())
    await asyncio.sleep(5)
    assert keys.find(HEADER) is not None
    store.is_away = True
    await asyncio.sleep(600)
    good = keys.find(HEADER) is not None
    await asyncio.sleep(3000)
    assert not following.done()
    return good, keys.find(HEADER) is not None


def test_keys_stay_good_while_the_store_is_away_for_ten_minutes_and_not_for_ever() -> None:
    """F-14: what is loaded serves on."""
    assert run_virtually(1, keys_through_an_outage()) == (True, False)
