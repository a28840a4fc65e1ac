"""The progress of a model's files: one figure for all the ways they take, published without a flood."""

from dataclasses import replace

import pytest

from corral.core.replicas.staging import PUBLISH_EVERY_S, FileTransfer, combine, should_publish

NOTHING = FileTransfer()
FETCHED = FileTransfer(file_index=2, files=2, bytes_done=100, bytes_total=100)
SENT = FileTransfer(file_index=1, file_name="a.gguf", files=3, bytes_done=10, bytes_total=300)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(
            FETCHED,
            SENT,
            FileTransfer(file_index=3, file_name="a.gguf", files=5, bytes_done=110, bytes_total=400),
            id="files-in-transfer-are-added-to-those-that-have-arrived",
        ),
        pytest.param(NOTHING, SENT, SENT, id="the-first-transfer-is-shown-as-it-is"),
        pytest.param(
            FETCHED,
            NOTHING,
            replace(FETCHED, file_index=2),
            id="what-has-arrived-stays-counted-while-nothing-moves",
        ),
        pytest.param(NOTHING, NOTHING, NOTHING, id="a-model-without-files-has-no-progress"),
    ],
)
def test_transfers_are_shown_as_one(before: FileTransfer, now: FileTransfer, expected: FileTransfer) -> None:
    assert combine(before, now) == expected


@pytest.mark.parametrize(
    ("hop", "bytes_done", "expected"),
    [
        pytest.param(1, 0, 0, id="nothing-is-done-at-the-beginning"),
        pytest.param(1, 80, 40, id="files-in-shared-storage-are-half-done"),
        pytest.param(2, 0, 40, id="the-second-leg-begins-at-the-half"),
        pytest.param(2, 40, 60, id="the-second-leg-counts-for-the-other-half"),
        pytest.param(2, 80, 80, id="both-legs-are-the-whole"),
    ],
)
def test_files_that_go_through_shared_storage_are_transferred_twice(hop: int, bytes_done: int, expected: int) -> None:
    now = FileTransfer(file_index=1, files=1, bytes_done=bytes_done, bytes_total=80, hop=hop, hops=2)
    assert combine(NOTHING, now).bytes_done == expected


def test_more_bytes_than_announced_never_show_more_than_the_whole() -> None:
    assert combine(NOTHING, FileTransfer(files=1, bytes_done=90, bytes_total=80)).bytes_done == 80


@pytest.mark.parametrize(
    ("published", "now", "since_s", "expected"),
    [
        pytest.param(None, SENT, 0.0, True, id="the-first-figure-is-published"),
        pytest.param(SENT, replace(SENT, file_index=2), 0.0, True, id="another-file-is-published-at-once"),
        pytest.param(SENT, replace(SENT, bytes_done=11), 0.5, False, id="bytes-wait-for-their-second"),
        pytest.param(SENT, replace(SENT, bytes_done=11), PUBLISH_EVERY_S, True, id="bytes-are-published-each-second"),
        pytest.param(SENT, SENT, 60.0, False, id="the-same-figure-is-not-published-twice"),
    ],
)
def test_what_is_published(published: FileTransfer | None, now: FileTransfer, since_s: float, expected: bool) -> None:
    assert should_publish(published, now, since_s=since_s) is expected
