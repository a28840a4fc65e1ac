"""Progress of a node: what a message changes, what is shown, and what is left when it has ended."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.backends.test_operations import S, node
from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgressStatus
from corral.core.backends.progress import after_worker, is_after_worker, merge_progress, overlay, settle_transfer
from corral.core.transfer import TransferProgress


def at(percentage: float) -> TransferProgress:
    return TransferProgress(phase="downloading", file_name="f", percentage=percentage, bytes_done=1, bytes_total=2)


@given(st.permutations(list(range(2, 8))))
def test_progress_in_any_order_ends_at_the_newest_and_never_decreases(order: list[int]) -> None:
    known = node(S.DOWNLOADING)
    seen = [known.transfer.percentage]
    for sequence in (1, *order):
        known = merge_progress(known, sequence, at(sequence * 10.0))
        seen.append(known.transfer.percentage)
    assert seen == sorted(seen)
    assert seen[-1] == 70.0


def test_a_worker_that_does_not_count_never_shows_less_than_before() -> None:
    known = node(S.DOWNLOADING)
    for percentage in (10.0, 90.0, 5.0, 122.0):
        known = merge_progress(known, None, at(percentage))
    assert known.transfer.percentage == 100.0


def test_late_progress_does_not_change_an_ended_node() -> None:
    done = replace(node(S.SUCCESS), transfer=at(100.0))
    assert merge_progress(done, 9, at(50.0)) is done
    assert overlay(done, replace(node(S.DOWNLOADING), transfer=at(50.0))) is done


def test_a_new_run_begins_at_zero_whatever_the_one_before_had_reached() -> None:
    before = merge_progress(merge_progress(node(S.DOWNLOADING), 1, at(5.0)), 7, at(95.0))
    assert merge_progress(before, 1, at(2.0)).transfer.percentage == 2.0


def test_a_run_whose_first_message_was_lost_begins_at_zero_after_a_frontends_step() -> None:
    before = merge_progress(node(S.DOWNLOADING), after_worker(1), at(100.0))
    again = merge_progress(before, 2, at(3.0))
    assert (again.sequence, again.transfer.percentage) == (2, 3.0)
    uncounted = merge_progress(before, None, at(4.0))
    assert (uncounted.sequence, uncounted.transfer.percentage) == (1, 4.0)
    later = merge_progress(before, after_worker(2), at(100.0))
    assert later.sequence == after_worker(2), "another frontend that takes over counts on"


@pytest.mark.parametrize("status", [S.QUEUED, S.ERROR, S.CANCELLED, S.SUCCESS])
def test_progress_of_an_ended_attempt_is_not_shown(status: NodeProgressStatus) -> None:
    live = replace(node(S.DOWNLOADING), sequence=9, transfer=at(95.0))
    stored = node(status)
    assert overlay(stored, live) is stored


def test_of_the_store_and_the_live_feed_the_later_message_is_shown() -> None:
    stored = replace(node(S.DOWNLOADING), sequence=5, transfer=at(60.0), error="kept")
    assert overlay(stored, replace(stored, sequence=4, transfer=at(50.0))) is stored
    assert overlay(stored, None) is stored
    shown = overlay(replace(stored, sequence=0), replace(node(S.DOWNLOADING), sequence=1, transfer=at(1.0)))
    assert shown == replace(stored, sequence=1, transfer=at(1.0))


MOVING = replace(at(40.0), rate_bytes_per_s=5.0, eta_s=9.0)


@pytest.mark.parametrize(
    ("status", "verb", "expected"),
    [
        pytest.param(S.DOWNLOADING, Verb.INSTALL, MOVING, id="running"),
        pytest.param(S.RUNNING_ON_WORKER, Verb.INSTALL, MOVING, id="unconfirmed"),
        pytest.param(S.ERROR, Verb.INSTALL, at(40.0), id="a-failed-node-has-no-rate"),
        pytest.param(S.CANCELLED, Verb.INSTALL, at(40.0), id="nor-a-cancelled-one"),
        pytest.param(S.SUCCESS, Verb.INSTALL, replace(at(100.0), phase="ready"), id="success-is-complete"),
        pytest.param(S.SUCCESS, Verb.DELETE, replace(at(100.0), phase=""), id="a-deleted-backend-is-not-ready"),
    ],
)
def test_settle_transfer(status: NodeProgressStatus, verb: Verb, expected: TransferProgress) -> None:
    assert settle_transfer(MOVING, status, verb) == expected


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [(0, False), (1, False), (1 << 40, False), (after_worker(0), True), (after_worker(1_900_000_000_000), True)],
)
def test_is_after_worker(sequence: int, expected: bool) -> None:
    assert is_after_worker(sequence) is expected
    assert sequence < 1 << 53, "exact in every JSON reader"
