from corral.core.process_leases import ProcessLeases, was_given_away
from corral.core.processes import ProcessKey

LEASES = ProcessLeases(asked_s=100.0, lengths_s={ProcessKey("short#0"): 5.0, ProcessKey("long#0"): 60.0})


def test_a_lease_ends_its_length_after_the_question_was_sent() -> None:
    assert LEASES.lapsed(104.9) == ()
    assert LEASES.lapsed(105.0) == ("short#0",)
    assert LEASES.lapsed(160.0) == ("short#0", "long#0")


def test_a_process_without_a_lease_never_lapses() -> None:
    assert ProcessLeases(asked_s=100.0).lapsed(1e9) == ()
    assert LEASES.without((ProcessKey("short#0"),)).lapsed(106.0) == ()


def test_a_late_word_about_an_older_process_does_not_end_its_successor() -> None:
    assert was_given_away(generation=4, up_to=4)
    assert was_given_away(generation=None, up_to=4)
    assert not was_given_away(generation=5, up_to=4)
