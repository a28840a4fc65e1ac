"""The usual length of a key's answers, from which the queue charges a request before its answer is known."""

from corral.core.access.answer_lengths import KEYS_MAX, AnswerLengths
from corral.core.access.token_estimate import OUTPUT_TOKENS


def test_the_first_answer_replaces_the_guess_and_the_latest_ones_count_most() -> None:
    lengths = AnswerLengths()
    assert lengths.usual("a") == OUTPUT_TOKENS
    lengths.learn("a", 4000)
    assert (lengths.usual("a"), lengths.usual("b")) == (4000, OUTPUT_TOKENS)
    lengths.learn("a", 2000)
    assert lengths.usual("a") == 3000
    for _ in range(100):
        lengths.learn("a", 100)
    assert 100 <= lengths.usual("a") < 101


def test_keys_that_were_not_seen_for_longest_are_forgotten() -> None:
    lengths = AnswerLengths()
    lengths.learn("first", 9)
    lengths.learn("second", 9)
    for number in range(KEYS_MAX - 1):
        lengths.learn("first" if number % 2 else f"k{number}", 9)
    for number in range(KEYS_MAX):
        lengths.learn(f"n{number}", 9)
    assert lengths.usual("second") == OUTPUT_TOKENS
