"""How revisions that do not serve yet are explained."""

from typing import Any

import pytest

from corral.cli.display.revisions import pending_note

WAITS = {"number": 2, "serving_number": 1, "reason": "", "failures": 0, "held": False}


@pytest.mark.parametrize(
    ("pending", "note"),
    [
        pytest.param({}, "revision 2 is being loaded and tried; revision 1 serves until it is ready", id="in-progress"),
        pytest.param(
            {"reason": "No room. Free some."},
            "revision 2 waits: No room. Free some; revision 1 serves until it is ready",
            id="waits-with-a-sentence-for-a-reason",
        ),
    ],
)
def test_a_revision_that_waits(pending: dict[str, Any], note: str) -> None:
    assert pending_note("m", {**WAITS, **pending}) == note


def test_the_reason_of_a_failed_revision_has_no_stop_before_the_semicolon() -> None:
    note = pending_note("m", {**WAITS, "reason": "It did not start.", "failures": 1})
    assert note.startswith("revision 2 failed: It did not start; revision 1 keeps serving. ")
