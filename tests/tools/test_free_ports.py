"""The ports that tests give to what they start."""

from harness.ports import Block


def test_no_two_callers_get_the_same_ports_even_where_others_have_claimed_all() -> None:
    block = Block(first=21000, span=200, taken=150)
    taken = [block.take(20, claim=lambda _unit: False) for _ in range(5)]
    assert len(set(taken)) == 5
    assert all(first % 10 == 0 and 21000 <= first <= 21180 for first in taken)
