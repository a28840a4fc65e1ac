"""What `corral demo` says about the answer whose node it killed."""

from typing import Any

import pytest

from corral.cli.commands.demo import describe_continuation


@pytest.mark.parametrize(
    ("explained", "said"),
    [
        pytest.param(
            {"state": "answered", "failed": [{"node": "demo-1"}], "chosen": {"node": "demo-3"}},
            "demo-3 continued the answer. Its client saw one stream and no error.",
            id="continued",
        ),
        pytest.param(
            {"state": "answered", "chosen": {"node": "demo-1"}},
            "demo-1 had sent its whole answer when it was killed, so there was nothing to continue.",
            id="killed-too-late",
        ),
        pytest.param(
            {"state": "answered", "failed": [{"node": "demo-1"}], "chosen": {"node": "demo-1"}},
            "demo-1 had sent its whole answer when it was killed, so there was nothing to continue.",
            id="only-the-last-event-was-missing",
        ),
        pytest.param(
            {"state": "broken", "failed": [{"node": "demo-1"}], "ending": "no other replica was ready"},
            "The answer was not continued: no other replica was ready.",
            id="broken-off",
        ),
    ],
)
def test_a_continuation_is_claimed_only_if_the_trace_has_one(explained: dict[str, Any], said: str) -> None:
    assert describe_continuation(explained, "demo-1") == said
