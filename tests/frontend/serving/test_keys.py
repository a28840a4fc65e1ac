"""Keys in memory, and the store they follow."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext

import pytest

from corral.core.errors import Forbidden, Unavailable
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

    async def read_sessions(self) -> Mapping[str, ApiKey]:
        return {}


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


@pytest.mark.parametrize(
    ("headers", "is_served"),
    [
        pytest.param({}, True, id="an-old-program"),
        pytest.param({"host": "127.0.0.1:8080"}, True, id="a-program"),
        pytest.param({"host": "[::1]:8080", "origin": "http://localhost:8080"}, True, id="our-page"),
        pytest.param(
            {"host": "herd.example", "origin": "https://herd.example"}, True, id="our-page-by-its-public-name"
        ),
        pytest.param({"host": "127.0.0.1:8080", "origin": "http://evil.example"}, False, id="a-strangers-page"),
        pytest.param({"host": "127.0.0.1:8080", "origin": "null"}, False, id="a-page-that-hides"),
        pytest.param({"host": "evil.example:8080"}, False, id="a-name-that-was-made-to-lead-here"),
        pytest.param({"host": "[evil"}, False, id="no-name"),
    ],
)
async def test_without_keys_only_this_machines_own_pages_and_programs_are_served(
    headers: dict[str, str], is_served: bool
) -> None:
    """S-12, for the lane and for everything else."""
    store, clock = Store(), SystemClock()
    gate = Gate(store, Guesses(clock), clock=clock, auth=False, public_url="https://herd.example/")
    keys = StoredKeys(store, gate, auth=False)
    assert keys.find(b"") is None
    asks = (keys.ask(headers, {}, "POST", "127.0.0.1"), gate.admit("POST", "/api/keys", headers, {}, "127.0.0.1"))
    for ask in asks:
        with nullcontext() if is_served else pytest.raises(Forbidden):
            assert await ask is not None


def test_keys_stay_good_while_the_store_is_away_for_ten_minutes_and_not_for_ever() -> None:
    """F-14: what is loaded serves on."""
    assert run_virtually(1, keys_through_an_outage()) == (True, False)
