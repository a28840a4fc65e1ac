"""How many nodes' states make one operation, and how progress merges."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, OperationState, conclude
from corral.core.backends.progress import ProgressNews, merge_progress, overlay
from corral.core.nodes.node import NodeId

S = NodeProgressStatus


def node(status: NodeProgressStatus, name: str = "n", error: str = "") -> NodeProgress:
    return NodeProgress(node_id=NodeId(name), node_name=name, status=status, error=error)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([node(S.SUCCESS), node(S.SUCCESS)], (OperationState.COMPLETED, ""), id="all-done"),
        pytest.param(
            [node(S.SUCCESS), node(S.ERROR, "b", "disk full"), node(S.ERROR, "c", "no route")],
            (OperationState.FAILED, "b: disk full; c: no route"),
            id="one-that-failed-fails-it-and-every-reason-is-kept",
        ),
        pytest.param(
            [node(S.SUCCESS), node(S.NOT_APPLICABLE, "b", "no build")],
            (OperationState.COMPLETED, ""),
            id="a-node-that-nothing-fits-does-not-fail-it",
        ),
        pytest.param(
            [node(S.NOT_APPLICABLE, "b", "no build")],
            (OperationState.FAILED, "b: no build"),
            id="but-nothing-anywhere-is-no-success",
        ),
        pytest.param([node(S.SUCCESS), node(S.CANCELLED, "b", "x")], (OperationState.CANCELLED, "x"), id="cancelled"),
        pytest.param([], (OperationState.COMPLETED, ""), id="a-policy-for-machines-to-come"),
    ],
)
def test_conclude(nodes: list[NodeProgress], expected: tuple[OperationState, str]) -> None:
    assert conclude(nodes, verb=Verb.INSTALL, cancel_requested=False, holds=True) == expected


def news(sequence: int | None, percentage: float) -> ProgressNews:
    return ProgressNews(
        sequence=sequence, phase="downloading", file_name="f", percentage=percentage, bytes_done=1, bytes_total=2,
        rate_bytes_per_s=None, eta_s=None,
    )  # fmt: skip


@given(st.permutations(list(range(2, 8))))
def test_progress_in_any_order_ends_at_the_newest_and_never_goes_back(order: list[int]) -> None:
    known = node(S.DOWNLOADING)
    seen = [known.percentage]
    for sequence in (1, *order):
        known = merge_progress(known, news(sequence, sequence * 10.0))
        seen.append(known.percentage)
    assert seen == sorted(seen)
    assert known.percentage >= 70.0 or known.percentage == max(seen)


def test_a_worker_that_does_not_count_never_shows_less_than_before() -> None:
    known = node(S.DOWNLOADING)
    for percentage in (10.0, 90.0, 5.0, 122.0):
        known = merge_progress(known, news(None, percentage))
    assert known.percentage == 100.0


def test_what_has_ended_is_not_touched_by_late_progress() -> None:
    done = replace(node(S.SUCCESS), percentage=100.0)
    assert merge_progress(done, news(9, 50.0)) is done
    assert overlay(done, replace(node(S.DOWNLOADING), percentage=50.0)) is done


def test_a_new_run_begins_from_nothing_whatever_the_one_before_had_reached() -> None:
    before = merge_progress(merge_progress(node(S.DOWNLOADING), news(1, 5.0)), news(7, 95.0))
    assert merge_progress(before, news(1, 2.0)).percentage == 2.0


@pytest.mark.parametrize("status", [S.QUEUED, S.ERROR, S.CANCELLED, S.SUCCESS])
def test_what_an_attempt_that_is_over_told_is_not_shown(status: NodeProgressStatus) -> None:
    live = replace(node(S.DOWNLOADING), sequence=9, percentage=95.0, phase="downloading")
    stored = node(status)
    assert overlay(stored, live) is stored


def test_of_the_store_and_the_live_feed_the_later_message_is_shown() -> None:
    stored = replace(node(S.DOWNLOADING), sequence=5, percentage=60.0)
    assert overlay(stored, replace(stored, sequence=4, percentage=50.0)) is stored
    assert overlay(replace(stored, sequence=0), replace(stored, sequence=1, percentage=1.0)).percentage == 1.0
