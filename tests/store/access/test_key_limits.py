"""Limits, defaults and expiry dates of keys, as both databases keep them; and the sums that budgets are made of."""

import pytest

from corral.core.access.calendar import DAY_MS, month_days
from corral.core.access.key_limits import KeyLimits, LimitsInForce, Priority
from corral.core.access.key_meter import TOKENS, MeteredRequest, Refusal
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.frontend.gateway.key_meters import KeyMeters
from corral.store.access.api_keys import ApiKey, Scope, hash_secret
from corral.store.serving.usage import UsageKey, Used
from corral.store.stores import Stores
from harness.databases import Rig

SECRET = "corral-secret-of-the-key"


async def add(stores: Stores, name: str = "app", scope: Scope = Scope.USER, **more: object) -> ApiKey:
    return await stores.access.add_key(id=name, name=name, scope=scope, key=f"{SECRET}-{name}", actor="ann", **more)  # type: ignore[arg-type]  # a table of fields


async def now_ms(stores: Stores) -> int:
    return await stores.nodes.now_ms()


async def test_limits_are_kept_edited_one_by_one_and_audited(stores: Stores) -> None:
    limits = KeyLimits(requests_per_minute=60, priority=Priority.HIGH)
    assert (await add(stores, limits=limits)).limits == limits
    edited = await stores.access.edit_key("app", limits={"tokens_per_day": 500, "priority": None}, actor="bob")
    assert edited.limits == KeyLimits(requests_per_minute=60, tokens_per_day=500)
    assert (await stores.access.read_keys())[0] == edited
    latest = (await stores.events.read_latest(limit=1))[0]
    assert (latest.actor, latest.action, latest.subject) == ("bob", "key.edited", "app")
    assert latest.detail == {"name": "app", "limits": {"tokens_per_day": 500, "priority": None}}


async def test_an_edit_keeps_what_it_does_not_name(stores: Stores) -> None:
    at = await now_ms(stores) + 60_000
    await add(stores, limits=KeyLimits(tokens_per_minute=9), models=["m"], expires_at=at)
    await stores.access.edit_key("app", models=None, actor="ann")
    key = (await stores.access.read_keys())[0]
    assert (key.models, key.limits, key.expires_at) == (None, KeyLimits(tokens_per_minute=9), at)
    with pytest.raises(NotFound, match="no active key 'nobody'"):
        await stores.access.edit_key("nobody", models=None, actor="ann")


async def test_defaults_are_in_force_where_a_key_has_no_limit_of_its_own(stores: Stores) -> None:
    await add(stores, limits=KeyLimits(requests_per_minute=5, tokens_per_day=0))
    assert await stores.access.read_default_limits() == KeyLimits()
    await stores.access.edit_default_limits({"requests_per_minute": 9, "tokens_per_day": 9}, actor="ann")
    await stores.access.edit_default_limits({"concurrent_requests": 2}, actor="ann")
    expected = LimitsInForce(requests_per_minute=5, concurrent_requests=2)
    active = await stores.access.read_active_keys()
    assert active[hash_secret(f"{SECRET}-app")].in_force == expected
    found = await stores.access.find_key(hash_secret(f"{SECRET}-app"))
    assert found is not None
    assert found.in_force == expected


async def test_an_expired_key_is_not_found_nor_are_its_sessions_until_it_is_extended(stores: Stores, rig: Rig) -> None:
    await add(stores, expires_at=await now_ms(stores) + 3_600_000)
    await stores.access.open_session("app", "token", ttl_s=7200)
    key_hash, session_hash = hash_secret(f"{SECRET}-app"), hash_secret("token")
    assert await stores.access.find_key(key_hash) is not None
    assert await stores.access.find_session(session_hash) is not None
    rig.run_sql("UPDATE api_keys SET expires_at = 1 WHERE id = 'app'")
    assert await stores.access.find_key(key_hash) is None
    assert await stores.access.find_session(session_hash) is None
    assert key_hash not in await stores.access.read_active_keys()
    assert session_hash not in await stores.access.read_sessions()
    await stores.access.edit_key("app", expires_at=None, actor="ann")
    assert await stores.access.find_key(key_hash) is not None


async def test_an_expiry_date_is_in_the_future_and_the_last_admin_key_has_none(stores: Stores) -> None:
    with pytest.raises(InvalidInput, match="must be in the future"):
        await add(stores, expires_at=await now_ms(stores) - 1)
    await add(stores, "root", Scope.ADMIN)
    later = await now_ms(stores) + 60_000
    with pytest.raises(Conflict, match="last admin key that does not expire"):
        await stores.access.edit_key("root", expires_at=later, actor="ann")
    await add(stores, "second", Scope.ADMIN, expires_at=later)
    with pytest.raises(Conflict, match="last admin key"):
        await stores.access.revoke_key("root", actor="ann")
    assert (await stores.access.revoke_key("second", actor="ann")).revoked_at is not None


async def use(stores: Stores, key_id: str, tokens: int, *, batch: int, day: int | None = None, rig: Rig) -> None:
    await stores.usage.add("w", batch, {UsageKey(key_id, "m", f"n{batch}"): Used(1, tokens, 1)})
    if day is not None:
        rig.run_sql(f"UPDATE usage SET day = {day} WHERE node_id = 'n{batch}'")


async def test_sums_of_the_day_and_of_the_month_by_key(stores: Stores, rig: Rig) -> None:
    today = (await stores.usage.read_key_tokens()).now_ms // DAY_MS
    first, following = month_days(today)
    days = {"today": today, "before the month": first - 1, "after it": following}
    await use(stores, "a", 99, batch=1, rig=rig)
    await use(stores, "a", 49, batch=2, day=days["before the month"], rig=rig)
    await use(stores, "b", 9, batch=3, day=first, rig=rig)
    found = await stores.usage.read_key_tokens()
    assert found.today == ({"a": 100, "b": 10} if first == today else {"a": 100})
    assert found.earlier == ({} if first == today else {"b": 10})
    assert (await stores.usage.read_key_tokens(known_day=today)).earlier is None


class SettableTime:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_process_that_starts_knows_what_was_spent_and_a_new_day_begins_at_midnight_of_the_store(
    stores: Stores, rig: Rig
) -> None:
    await use(stores, "a", 99, batch=1, rig=rig)
    time = SettableTime()
    meters = KeyMeters(frontend="f", run="r", now_s=time)
    await meters.read_sums(stores.usage)
    limits = LimitsInForce(tokens_per_day=300)

    def ask() -> MeteredRequest | Refusal:
        return meters.admit("a", limits, b"x" * 800, 1, False, time.now_s)

    refused = ask()
    assert getattr(refused, "used", None) == 100
    left_s = meters.periods.day_ends_s - time.now_s
    assert 0 < left_s <= 86_400
    assert getattr(refused, "wait_s", None) == left_s
    time.now_s += left_s - 0.5
    meters.roll_periods(time.now_s)
    assert getattr(ask(), "used", None) == 100, "half a second before midnight"
    time.now_s += 0.5
    meters.roll_periods(time.now_s)
    admitted = ask()
    assert not isinstance(admitted, Refusal)
    assert admitted[TOKENS] == 201, "admitted, although the store was not read since"
