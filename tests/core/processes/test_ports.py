import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.errors import InvalidSetting
from corral.core.processes.ports import NoPortLeft, PortPool, PortSpan, plan_ports


def take(pool: PortPool, key: str, now_s: float) -> int:
    port = next(iter(pool.candidates(key, now_s=now_s)))
    pool.claim(port, key)
    return port


def test_a_released_port_is_quarantined_then_waits_for_its_key_then_is_free() -> None:
    pool = PortPool([1, 2])
    assert take(pool, "a", 0) == 1
    pool.release(1, "a", now_s=10)
    assert list(pool.candidates("a", now_s=24.9)) == [2]  # resting, for its own key too
    assert list(pool.candidates("a", now_s=25)) == [1, 2]  # its own comes first
    assert list(pool.candidates("b", now_s=25)) == [2, 1]  # a stranger gets it last
    assert list(pool.candidates("b", now_s=310)) == [1, 2]  # nobody waits for it any more


def test_the_port_kept_longest_is_the_first_to_be_taken_from_its_key() -> None:
    pool = PortPool([1, 2])
    take(pool, "a", 0)
    take(pool, "b", 0)
    pool.release(2, "b", now_s=1)
    pool.release(1, "a", now_s=2)
    assert list(pool.candidates("c", now_s=100)) == [2, 1]


def test_releasing_twice_does_not_restart_the_quarantine() -> None:
    pool = PortPool([1])
    take(pool, "a", 0)
    pool.release(1, "a", now_s=0)
    pool.release(1, "a", now_s=14)
    assert list(pool.candidates("a", now_s=15)) == [1]


def test_a_late_release_by_the_last_owner_does_not_take_the_port_from_the_next() -> None:
    pool = PortPool([1])
    take(pool, "a", 0)
    pool.release(1, "a", now_s=0)
    take(pool, "b", 400)
    pool.release(1, "a", now_s=401)
    assert pool.in_use == {1: "b"}


def test_a_port_has_one_owner() -> None:
    pool = PortPool([1])
    pool.claim(1, "a")
    with pytest.raises(ValueError, match="already belongs to a"):
        pool.claim(1, "b")


def test_exhaustion_says_what_holds_the_ports_and_what_to_do() -> None:
    pool = PortPool([5, 6, 7])
    take(pool, "a", 0)
    take(pool, "b", 0)
    pool.release(6, "b", now_s=1)
    problem = pool.exhausted(now_s=2, foreign=1)
    assert isinstance(problem, NoPortLeft)
    assert problem.retryable
    assert "5-7: 1 in use, 1 in quarantine, 1 held by other programs" in str(problem)
    assert "CORRAL_BACKEND_PORTS" in str(problem)


@pytest.mark.parametrize(
    ("wanted", "reserved", "expected"),
    [
        pytest.param(PortSpan(100, 102), (), (100, 101, 102), id="outside-the-ephemeral-range"),
        pytest.param(PortSpan(198, 202), (), (198, 199), id="the-part-inside-is-left-out"),
        pytest.param(PortSpan(200, 203), (PortSpan(201, 202),), (201, 202), id="unless-the-administrator-reserved-it"),
    ],
)
def test_plan_ports(wanted: PortSpan, reserved: tuple[PortSpan, ...], expected: tuple[int, ...]) -> None:
    assert plan_ports(wanted, ephemeral=PortSpan(200, 300), reserved=reserved) == expected


@pytest.mark.parametrize("wanted", [PortSpan(200, 300), PortSpan(0, 5), PortSpan(10, 9), PortSpan(65000, 70000)])
def test_a_range_without_a_usable_port_names_the_setting(wanted: PortSpan) -> None:
    with pytest.raises(InvalidSetting, match="CORRAL_BACKEND_PORTS"):
        plan_ports(wanted, ephemeral=PortSpan(200, 300))


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.floats(0, 60)), max_size=60))
def test_whatever_happens_a_port_has_one_owner_and_is_quarantined_before_the_next(
    steps: list[tuple[str, bool, float]],
) -> None:
    """INV-22."""
    pool = PortPool(range(4))
    now_s = 0.0
    held: dict[str, int] = {}
    released_s: dict[int, float] = {}
    for key, start, pause_s in steps:
        now_s += pause_s
        if start and key not in held:
            candidates = list(pool.candidates(key, now_s=now_s))
            assert not set(candidates) & set(held.values())
            assert all(now_s - released_s.get(port, -99) >= 15 for port in candidates)
            if candidates:
                pool.claim(candidates[0], key)
                held[key] = candidates[0]
        elif not start and key in held:
            released_s[held[key]] = now_s
            pool.release(held.pop(key), key, now_s=now_s)
    assert pool.in_use == {port: key for key, port in held.items()}
