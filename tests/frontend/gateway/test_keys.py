"""API keys in memory, kept current from the store."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from corral.bus.messages import KeysInForce
from corral.core.errors import Forbidden, TimedOut, Unavailable
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.rules import Authorizer
from corral.frontend.gateway.keys import StoredKeys, client_key
from corral.store.access.api_keys import AccessStore, ApiKey, Scope, hash_secret
from corral.system import SystemClock
from harness.waiting import until
from sim.loop import run_virtually

SECRET = "corral-secret"
HEADER = f"Bearer {SECRET}".encode()
KEY = ApiKey(
    id="k", name="one", scope=Scope.USER, hint="corral-", created_at=0, created_by="", revoked_at=None, models=None
)


class Store(AccessStore):
    def __init__(self) -> None:
        self.is_away = False
        self.keys = {hash_secret(SECRET): KEY}

    async def read_active_keys(self) -> dict[str, ApiKey]:
        if self.is_away:
            raise Unavailable("the store is away")
        return dict(self.keys)

    async def find_key(self, key_hash: str) -> ApiKey | None:
        return (await self.read_active_keys()).get(key_hash)

    async def find_session(self, token_hash: str) -> ApiKey | None:
        return None

    async def read_sessions(self) -> dict[str, ApiKey]:
        return {}


async def keys_through_an_outage() -> tuple[bool, bool]:
    """Whether the key is good after ten minutes without the store, and after an hour."""
    store, clock = Store(), SystemClock()
    keys = StoredKeys(store, Authorizer(store, BruteForceGuard(clock), clock=clock, auth=True), auth=True)
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
            {"host": "cluster.example", "origin": "https://cluster.example"}, True, id="our-page-by-its-public-name"
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
    """S-12, for the gateway and for everything else."""
    store, clock = Store(), SystemClock()
    authorizer = Authorizer(
        store, BruteForceGuard(clock), clock=clock, auth=False, public_url="https://cluster.example/"
    )
    keys = StoredKeys(store, authorizer, auth=False)
    assert keys.find(b"") is None
    asks = (
        keys.authenticate(headers, {}, "POST", "127.0.0.1"),
        authorizer.admit("POST", "/api/keys", headers, {}, "127.0.0.1"),
    )
    for ask in asks:
        with nullcontext() if is_served else pytest.raises(Forbidden):
            assert await ask is not None


def test_keys_stay_valid_while_the_store_is_unavailable_for_ten_minutes_and_not_for_ever() -> None:
    """F-14: what is loaded serves on."""
    assert run_virtually(1, keys_through_an_outage()) == (True, False)


class Neighbour:
    """Another frontend, as this one meets it on the bus."""

    def __init__(self) -> None:
        self.connected = True
        self.silent = False
        self.asks: Callable[[], KeysInForce] = lambda: KeysInForce(from_store=False)
        self.told: Sequence[str] = ()

    async def are_there(self) -> bool:
        return True

    async def request_keys(self, revoked: Sequence[str]) -> KeysInForce:
        self.told = revoked
        if self.silent or not self.connected:
            raise TimedOut("no answer")
        return self.asks()


OTHER_SECRET = "corral-other"
OTHER_HEADER = f"Bearer {OTHER_SECRET}".encode()
OTHER_KEY = replace(KEY, id="other", name="two")


async def _follow(neighbour: Neighbour) -> tuple[Store, StoredKeys, "asyncio.Future[None]"]:
    store, clock = Store(), SystemClock()
    store.keys[hash_secret(OTHER_SECRET)] = OTHER_KEY
    keys = StoredKeys(
        store, Authorizer(store, BruteForceGuard(clock), clock=clock, auth=True), auth=True, peers=neighbour
    )
    following = asyncio.ensure_future(keys.follow())
    await asyncio.sleep(5)
    assert keys.find(HEADER) is not None
    return store, keys, following


async def cut_off_from_all() -> list[bool]:
    """Whether a key in use is good some seconds into an isolation from the store and the other frontends."""
    neighbour = Neighbour()
    store, keys, _ = await _follow(neighbour)
    store.is_away, neighbour.silent = True, True
    good = []
    for wait_s in (20, 40, 3600):
        await asyncio.sleep(wait_s)
        good.append(keys.find(HEADER) is not None)
    store.is_away = False
    await asyncio.sleep(5)
    return [*good, keys.find(HEADER) is not None]


def test_a_frontend_that_can_ask_nobody_honours_no_key_after_a_minute() -> None:
    assert run_virtually(1, cut_off_from_all()) == [True, False, False, True]


async def without_the_store_just_after_a_revocation() -> tuple[Sequence[str], bool, bool]:
    """What the frontend that revoked a key tells the others, and whether one that missed the announcement honours that
    key and another one once it was told."""
    neighbour = Neighbour()
    store, first, _ = await _follow(neighbour)
    other_store, second, _ = await _follow(Neighbour())
    del store.keys[hash_secret(OTHER_SECRET)]
    first.notify()
    await asyncio.sleep(1)
    store.is_away = other_store.is_away = True
    await asyncio.sleep(5)
    second.drop(neighbour.told)
    return neighbour.told, second.find(OTHER_HEADER) is not None, second.find(HEADER) is not None


def test_a_missed_revocation_spreads_between_frontends_without_the_store() -> None:
    assert run_virtually(1, without_the_store_just_after_a_revocation()) == (["other"], False, True)


async def cut_off_from_the_store_alone() -> tuple[bool, bool, bool, bool]:
    neighbour = Neighbour()
    store, keys, _ = await _follow(neighbour)
    in_force = {key.id: client_key(key).mark for key in (KEY, OTHER_KEY)}
    neighbour.asks = lambda: KeysInForce(from_store=True, keys=dict(in_force))
    store.is_away = True
    await asyncio.sleep(7200)
    both = (keys.find(HEADER) is not None, keys.find(OTHER_HEADER) is not None)
    del in_force["other"]
    keys.notify()
    await asyncio.sleep(5)
    return (*both, keys.find(HEADER) is not None, keys.find(OTHER_HEADER) is not None)


def test_a_frontend_that_lost_the_store_learns_of_revoked_keys_from_the_others() -> None:
    assert run_virtually(1, cut_off_from_the_store_alone()) == (True, True, True, False)


async def a_key_is_held_to_fewer_models() -> bool:
    neighbour = Neighbour()
    store, keys, _ = await _follow(neighbour)
    changed = client_key(replace(KEY, models=("tiny",)))
    neighbour.asks = lambda: KeysInForce(from_store=True, keys={"k": changed.mark, "other": client_key(OTHER_KEY).mark})
    store.is_away = True
    await asyncio.sleep(10)
    return keys.find(HEADER) is not None


def test_what_a_key_may_no_longer_do_is_not_done_from_memory() -> None:
    assert run_virtually(1, a_key_is_held_to_fewer_models()) is False


async def the_store_is_away_for_all() -> tuple[bool, bool]:
    neighbour = Neighbour()
    store, keys, _ = await _follow(neighbour)
    store.is_away = True
    await asyncio.sleep(600)
    good = keys.find(HEADER) is not None
    await asyncio.sleep(3000)
    return good, keys.find(HEADER) is not None


def test_several_frontends_serve_on_while_the_store_is_unavailable_for_all_of_them() -> None:
    assert run_virtually(1, the_store_is_away_for_all()) == (True, False)


async def test_other_frontends_get_the_keys_as_they_are_in_the_store_now() -> None:
    store, clock = Store(), SystemClock()
    keys = StoredKeys(store, Authorizer(store, BruteForceGuard(clock), clock=clock, auth=True), auth=True)
    told = await keys.answer_peer()
    assert told == KeysInForce(from_store=True, keys={"k": client_key(KEY).mark})
    assert SECRET not in str(told)
    assert hash_secret(SECRET) not in str(told)
    store.is_away = True
    assert await keys.answer_peer() == KeysInForce(from_store=False)


class Asking:
    """Puts the question to one other frontend."""

    connected = True

    def __init__(self, other: StoredKeys) -> None:
        self._other = other
        self.asks = 0

    async def are_there(self) -> bool:
        return True

    async def request_keys(self, revoked: Sequence[str]) -> KeysInForce:
        self.asks += 1
        return await self._other.answer_peer()


async def test_a_key_that_the_other_frontend_has_not_read_yet_does_not_count_as_revoked() -> None:
    clock = SystemClock()
    theirs, ours = Store(), Store()
    other = StoredKeys(theirs, Authorizer(theirs, BruteForceGuard(clock), clock=clock, auth=True), auth=True)
    await other.refresh()
    asking = Asking(other)
    keys = StoredKeys(ours, Authorizer(ours, BruteForceGuard(clock), clock=clock, auth=True), auth=True, peers=asking)
    ours.keys[hash_secret(OTHER_SECRET)] = theirs.keys[hash_secret(OTHER_SECRET)] = OTHER_KEY
    await keys.refresh()
    ours.is_away = True
    following = asyncio.ensure_future(keys.follow())
    await until(lambda: asking.asks == 2, "the first answer was taken")
    assert keys.find(OTHER_HEADER) is not None
    del theirs.keys[hash_secret(OTHER_SECRET)]
    keys.notify()
    await until(lambda: keys.find(OTHER_HEADER) is None, "the revoked key is gone")
    assert keys.find(HEADER) is not None
    following.cancel()


class SlowStore(Store):
    """Answers with what was in force when it was asked, when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Event] = []

    async def read_active_keys(self) -> dict[str, ApiKey]:
        keys = dict(self.keys)
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()
        return keys


async def test_a_read_that_began_earlier_and_ends_later_does_not_undo_a_newer_one() -> None:
    store, clock = SlowStore(), SystemClock()
    keys = StoredKeys(store, Authorizer(store, BruteForceGuard(clock), clock=clock, auth=True), auth=True)
    early = asyncio.ensure_future(keys.refresh())
    await until(lambda: len(store.answers) == 1, "the first read has begun")
    store.keys[hash_secret(OTHER_SECRET)] = OTHER_KEY
    late = asyncio.ensure_future(keys.refresh())
    await until(lambda: len(store.answers) == 2, "the second read has begun")
    store.answers[1].set()
    await late
    assert keys.find(OTHER_HEADER) is not None
    store.answers[0].set()
    await early
    assert keys.find(OTHER_HEADER) is not None


async def test_an_answer_of_another_frontend_does_not_undo_a_newer_read() -> None:
    neighbour, store, clock = HeldNeighbour(), Store(), SystemClock()
    keys = StoredKeys(
        store, Authorizer(store, BruteForceGuard(clock), clock=clock, auth=True), auth=True, peers=neighbour
    )
    store.is_away = True
    following = asyncio.ensure_future(keys.follow())
    await neighbour.asked.wait()
    store.is_away = False
    store.keys[hash_secret(OTHER_SECRET)] = OTHER_KEY
    await keys.refresh()
    neighbour.answers.set()
    await asyncio.sleep(0)
    await until(lambda: neighbour.has_answered, "the answer has come")
    assert keys.find(OTHER_HEADER) is not None
    following.cancel()


class HeldNeighbour(Neighbour):
    """Knows one key, and answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.has_answered = False

    async def request_keys(self, revoked: Sequence[str]) -> KeysInForce:
        self.asked.set()
        await self.answers.wait()
        self.has_answered = True
        return KeysInForce(from_store=True, keys={"k": client_key(KEY).mark})
