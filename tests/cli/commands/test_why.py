"""The output of `corral why`, with repeated lines joined."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from corral.cli.client.api import Api
from corral.cli.commands import why
from corral.cli.commands.why import explain_model, explain_node, explain_request


@dataclass(frozen=True)
class FixedAnswer(Api):
    """A client whose frontend always gives the same answer."""

    answer: dict[str, Any] = field(default_factory=dict)

    def call(self, *_: Any, **__: Any) -> Any:
        return self.answer


def answering(answer: dict[str, Any]) -> Api:
    return FixedAnswer(url="", key=None, as_json=False, data_dir=Path(), answer=answer)


def candidate(node: str, verdict: str, reason: str) -> dict[str, Any]:
    return {"node_id": node, "node": node, "verdict": verdict, "reason": reason, "score": None}


def test_nodes_with_the_same_verdict_and_reason_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    asleep = [candidate(f"n{number}", "ruled_out", "it is offline") for number in range(9)]
    full = candidate("full", "ruled_out", "it is full")
    decision = {
        "at": "2026-01-02T03:04:05Z",
        "cause": "a request",
        "outcome": {"placed": {"evict": []}},
        "nodes": 11,
        "candidates": [candidate("best", "chosen", ""), *asleep[:5], full, *asleep[5:]],
    }
    explain_model(answering({"model": "m", "number": 1, "replicas": [], "loads": [], "decisions": [decision]}), "m")
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "  " in line][1:]
    assert lines == [
        ["*", "best", "chosen"],
        ["n0,", "n1,", "n2", "and", "6", "more", "ruled", "out", "it", "is", "offline"],
        ["full", "ruled", "out", "it", "is", "full"],
    ]


def test_repeated_decisions_about_a_model_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def waits(second: int) -> dict[str, Any]:
        outcome = {"waiting": "no room"}
        at = f"2026-01-02T03:04:{second:02}Z"
        return {"at": at, "cause": "9 are wanted", "outcome": outcome, "nodes": 1, "candidates": candidates}

    candidates = [candidate("n", "ruled_out", "it is full")]
    loads = [{"cause": "9 are wanted", "state": "pending", "attempts": tried, "reason": "no room"} for tried in (2, 3)]
    placed = {**waits(0), "outcome": {"placed": {"evict": []}}}
    answer = {
        "model": "m",
        "number": 1,
        "replicas": [],
        "loads": loads,
        "decisions": [waits(9), waits(5), waits(1), placed],
    }
    explain_model(answering(answer), "m")
    assert [line for line in capsys.readouterr().out.splitlines()[1:] if line and "ruled out" not in line] == [
        "2 loads (9 are wanted): pending, attempt 4. no room",
        "2026-01-02 03:04:09  waiting: no room (cause: 9 are wanted) (3 times since 2026-01-02 03:04:01)",
        "2026-01-02 03:04:00  placed (cause: 9 are wanted)",
    ]


def test_evicted_replicas_and_the_remaining_candidates_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    decision = {
        "at": "2026-01-02T03:04:05Z",
        "cause": "a request",
        "outcome": {"placed": {"evict": ["id"]}, "ended": ["old#0"]},
        "nodes": 301,
        "candidates": [candidate("best", "chosen", "")],
        "others": [
            {"verdict": "ruled_out", "reason": "it is offline", "nodes": 290},
            {"verdict": "possible", "reason": "", "nodes": 10},
        ],
    }
    explain_model(answering({"model": "m", "number": 1, "replicas": [], "loads": [], "decisions": [decision]}), "m")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "evicted: old#0" in lines
    assert lines[-1] == "and 300 more nodes: 290 ruled out (it is offline); 10 possible"


def test_repeated_decisions_about_a_node_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def ruled_out(second: int, model: str) -> dict[str, Any]:
        return {"at": f"2026-01-02T03:04:{second:02}Z", "model": model, **candidate("n", "ruled_out", "it is draining")}

    decisions = [ruled_out(9, "m"), ruled_out(5, "m"), ruled_out(1, "m"), ruled_out(0, "other")]
    answer = {"node": "n", "status": "draining", "reason": "", "replicas": [], "decisions": decisions}
    explain_node(answering(answer), "n")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "2026-01-02 03:04:09  m: ruled out. it is draining (3 times since 2026-01-02 03:04:01)",
        "2026-01-02 03:04:00  other: ruled out. it is draining",
    ]


def test_help_lists_the_kinds_and_not_the_guess() -> None:
    text = CliRunner().invoke(why.why_group, ["--help"]).output
    assert all(f"\n  {kind} " in text for kind in ("model", "node", "request"))
    assert "guess" not in text


def test_a_request_that_was_continued_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    request = {
        "id": "a-1", "model": "m", "path": "/v1/chat/completions", "began_at": "2026-01-02T03:04:05Z", "status": 200,
        "state": "answered", "key": "", "took_s": 2.0, "continuations": 2,
        "failed": [{"replica": "r", "node": "n1", "error": "it closed the connection"}],
    }  # fmt: skip
    explain_request(answering(request), "a-1")
    assert "its answer broke off and was continued at another replica, 2 times" in capsys.readouterr().out
