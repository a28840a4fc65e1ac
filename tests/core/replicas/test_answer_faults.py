"""Whether a server is avoided after it answered with errors, and by whom."""

import pytest

from corral.core.replicas.answer_faults import KEYS_MAX, AnswerFaults, Blame


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        pytest.param("a1", Blame.NONE, id="one-request"),
        pytest.param("a1 a1 a1 a1 a1", Blame.NONE, id="one-request-however-often"),
        pytest.param("a1 b1 c1 a1", Blame.NONE, id="one-request-of-whatever-key"),
        pytest.param("a1 a2 a1 a2", Blame.NONE, id="two-requests"),
        pytest.param("a1 a2 a3", Blame.KEY, id="several-requests-of-one-key"),
        pytest.param("a1 a2 a3 a1", Blame.KEY, id="one-key-alone-is-never-enough-for-the-others"),
        pytest.param("a1 b2", Blame.NONE, id="two-keys-with-one-request-each"),
        pytest.param("a1 b2 b3", Blame.SERVER, id="different-requests-of-two-keys"),
        pytest.param("a1 a2 a3 b4", Blame.SERVER, id="whoever-comes-next"),
        pytest.param("a1 a2 ok a3", Blame.NONE, id="a-success-between-them-shows-that-it-works"),
    ],
)
def test_who_avoids_a_server(failed: str, expected: Blame) -> None:
    faults = AnswerFaults()
    blame = Blame.NONE
    for each in failed.split():
        if each == "ok":
            faults.clear()
        else:
            blame = faults.add(each[0], int(each[1:]))
    assert blame is expected


def test_it_remembers_a_bounded_number_of_keys() -> None:
    faults = AnswerFaults()
    assert {faults.add(f"k{number}", 1) for number in range(2 * KEYS_MAX)} == {Blame.NONE}
    assert faults.add("k1", 2) is Blame.NONE
    assert faults.add("k1", 3) is Blame.SERVER
