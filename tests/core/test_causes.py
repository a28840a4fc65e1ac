"""One line of a long story."""

import pytest

from corral.core.causes import LAST_OUTPUT, brief_cause, join_reasons


def died(*lines: str) -> str:
    return f"w1 could not start m: m#0 did not start: exit code 1. {LAST_OUTPUT}" + "".join(f"\n    {x}" for x in lines)


TRACEBACK = ("Traceback (most recent call last):", '  File "/w/run.py", line 3, in main', "KeyError: 'x'")


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        pytest.param("w1 has no room", "w1 has no room", id="nothing-to-shorten"),
        pytest.param("one\n  and two", "one and two", id="in-one-line"),
        pytest.param(died(), died(), id="it-said-nothing"),
        pytest.param(
            died("loading", "failed to open '/data/models/m.gguf' (No such file)", "exiting due to an error"),
            "w1 could not start m: m#0 did not start: exit code 1: failed to open 'm.gguf' (No such file)",
            id="the-first-line-that-names-a-problem",
        ),
        pytest.param(
            died("hello", *TRACEBACK),
            "w1 could not start m: m#0 did not start: exit code 1: KeyError: 'x'",
            id="a-traceback-ends-with-its-error",
        ),
        pytest.param(
            died("cannot load https://host/a/b", *TRACEBACK),
            "w1 could not start m: m#0 did not start: exit code 1: cannot load https://host/a/b",
            id="what-it-said-before-and-an-address-is-no-path",
        ),
        pytest.param(
            died(*TRACEBACK, "main exited with an error"),
            "w1 could not start m: m#0 did not start: exit code 1: KeyError: 'x'",
            id="not-what-follows-from-it",
        ),
        pytest.param(
            died(
                *TRACEBACK,
                "",
                "During handling of the above exception, another exception occurred:",
                *TRACEBACK[:2],
                "ValueError: no y",
            ),
            "w1 could not start m: m#0 did not start: exit code 1: ValueError: no y",
            id="the-last-of-several-tracebacks",
        ),
        pytest.param(
            died(*TRACEBACK, "During handling of the above exception:", *TRACEBACK[:2], "TemplateMissing: y"),
            "w1 could not start m: m#0 did not start: exit code 1: TemplateMissing: y",
            id="an-error-of-any-name",
        ),
        pytest.param(
            died(*TRACEBACK[1:], "hello", "loading", "still loading", "failed to open 'm.gguf' (No such file)"),
            "w1 could not start m: m#0 did not start: exit code 1: failed to open 'm.gguf' (No such file)",
            id="a-cut-traceback-before-what-was-written-at-the-end",
        ),
        pytest.param(
            died("a", "b"), "w1 could not start m: m#0 did not start: exit code 1: b", id="else-what-it-said-last"
        ),
    ],
)
def test_brief_cause(text: str, brief: str) -> None:
    assert brief_cause(text) == brief


@pytest.mark.parametrize(
    ("reasons", "joined"),
    [
        pytest.param([], "", id="nothing-to-say"),
        pytest.param(["", "no room"], "no room", id="only-those-that-say-something"),
        pytest.param(
            ["No room. Free some.", "no GPU."], "No room. Free some; no GPU.", id="no-stop-before-a-semicolon"
        ),
        pytest.param(["no room.", "no GPU", "no room"], "no room; no GPU", id="each-once"),
        pytest.param(["it goes on ...", "no GPU"], "it goes on ...; no GPU", id="an-omission-stays"),
    ],
)
def test_reasons_are_joined(reasons: list[str], joined: str) -> None:
    assert join_reasons(reasons) == joined
