import pytest

from corral.core.processes.leases import NodeShare, ProcessLeases, lease_length_s, plan_lease, was_revoked
from corral.core.processes.process import ProcessKey

LEASES = ProcessLeases(asked_s=100.0, lengths_s={ProcessKey("short#0"): 5.0, ProcessKey("long#0"): 60.0})


def test_a_lease_ends_its_length_after_the_question_was_sent() -> None:
    assert LEASES.lapsed(104.9) == ()
    assert LEASES.lapsed(105.0) == ("short#0",)
    assert LEASES.lapsed(160.0) == ("short#0", "long#0")


def test_a_process_without_a_lease_never_lapses() -> None:
    assert ProcessLeases(asked_s=100.0).lapsed(1e9) == ()
    assert LEASES.without((ProcessKey("short#0"),)).lapsed(106.0) == ()


NEW = ProcessKey("new#0")
STARTED = LEASES.begin(NEW, begun_s=102.0, length_s=10.0)


@pytest.mark.parametrize(
    ("leases", "lapsed"),
    [
        pytest.param(STARTED, True, id="a-process-that-no-renewal-knows-ends-with-its-first-lease"),
        pytest.param(STARTED.renew({}, asked_s=103.0), True, id="a-renewal-from-memory-may-not-know-it-yet"),
        pytest.param(STARTED.renew({NEW: 60.0}, asked_s=103.0), False, id="a-renewal-that-has-it-replaces-the-first"),
        pytest.param(STARTED.renew({}, asked_s=132.0), False, id="a-renewal-long-after-decides-that-it-has-no-lease"),
        pytest.param(STARTED.prolong(asked_s=110.0), False, id="a-frontend-without-its-store-prolongs-it"),
        pytest.param(STARTED.without((NEW,)), False, id="what-was-stopped-has-none"),
    ],
)
def test_a_first_lease_holds_until_a_renewal_knows_the_process(leases: ProcessLeases, lapsed: bool) -> None:
    assert STARTED.lapsed(111.9) == ("short#0",)
    assert (NEW in leases.lapsed(112.0)) is lapsed


def test_a_process_that_has_a_lease_gets_no_first_one() -> None:
    assert LEASES.begin(ProcessKey("long#0"), begun_s=101.0, length_s=1.0) is LEASES


def test_a_late_word_about_an_older_process_does_not_end_its_successor() -> None:
    assert was_revoked(generation=4, up_to=4)
    assert was_revoked(generation=None, up_to=4)
    assert not was_revoked(generation=5, up_to=4)


def test_what_is_desired_is_leased_and_what_is_desired_again_is_not_revoked() -> None:
    share = NodeShare(desired=frozenset({"a#0", "b#0"}), revoked={"b#0": 4, "c#0": 7})
    assert plan_lease(share, lease_s=60.0) == ({"a#0": 60.0, "b#0": 60.0}, {"c#0": 7})
    assert plan_lease(NodeShare(), lease_s=60.0) == ({}, {})


def test_a_lease_outlasts_the_verdict_that_its_node_is_gone() -> None:
    def length_s(disconnect_grace_s: float) -> float:
        return lease_length_s(disconnect_grace_s=disconnect_grace_s, offline_after_s=60.0, heartbeat_interval_s=10.0)

    assert length_s(1800.0) == 1800.0
    assert length_s(5.0) == 80.0
