"""Gates: a new version against the previous one."""

from typing import Any

import msgspec
import pytest

from corral.core.backends.gates import (
    Comparison,
    GateOutcome,
    GateSettings,
    GateVerdict,
    VersionSample,
    gates_pass,
    judge_versions,
    pick_baseline,
)
from corral.core.backends.serving_figures import BUCKETS, FIRST_TOKEN_BOUNDS_S, ServingFigures
from corral.core.errors import InvalidInput

MIB = 1 << 20


def figures(
    requests: int = 100, *, errors: int = 0, first_token_ms: float = 100.0, tokens_per_s: float = 50.0
) -> ServingFigures:
    buckets = [0] * BUCKETS
    at = next(index for index, bound in enumerate(FIRST_TOKEN_BOUNDS_S) if bound * 1000 >= first_token_ms)
    buckets[at] = requests
    return ServingFigures(
        requests=requests,
        errors=errors,
        first_token=tuple(buckets),
        tokens_out=requests * 10,
        answer_ms=round(requests * 10 / tokens_per_s * 1000),
    )


def sample(served: ServingFigures, memory: int | None = 1000 * MIB) -> VersionSample:
    return VersionSample(figures=served, memory_bytes=memory)


OLD = sample(figures())
PASSED, FAILED, UNJUDGED = GateOutcome.PASSED, GateOutcome.FAILED, GateOutcome.UNJUDGED


@pytest.mark.parametrize(
    ("gate", "new", "old", "outcome", "text"),
    [
        ("errors", sample(figures(errors=1)), OLD, PASSED, "1 of 100 requests failed (1.0 %) against 0.0 % before"),
        ("errors", sample(figures(errors=3)), OLD, FAILED, "3.0 %"),
        ("errors", sample(figures(errors=6)), sample(figures(errors=5)), PASSED, "at most 7.0 %"),
        ("errors", sample(figures(10)), OLD, UNJUDGED, "only 10 requests"),
        ("errors", sample(figures(10, errors=8)), OLD, FAILED, "8 of 10"),
        ("errors", sample(figures(0)), OLD, UNJUDGED, "no requests"),
        ("errors", sample(figures(errors=30)), None, FAILED, "none known before"),
        ("first_token", sample(figures(first_token_ms=110)), OLD, PASSED, "at most 1.5"),
        ("first_token", sample(figures(first_token_ms=310)), OLD, FAILED, "ms before (3."),
        ("first_token", sample(figures(first_token_ms=9)), sample(figures(first_token_ms=2)), PASSED, "times"),
        ("first_token", sample(figures()), None, UNJUDGED, "only 0 streams of the previous version"),
        ("first_token", sample(figures(5)), OLD, UNJUDGED, "only 5 streams"),
        ("throughput", sample(figures(tokens_per_s=40)), OLD, PASSED, "40.0 tokens/s per request against 50.0 before"),
        ("throughput", sample(figures(tokens_per_s=17)), OLD, FAILED, "0.34 times; at least 0.67"),
        ("throughput", sample(figures(tokens_per_s=400)), sample(figures(tokens_per_s=900)), PASSED, "0.44 times"),
        ("throughput", sample(ServingFigures(requests=50)), OLD, UNJUDGED, "new version have no counted tokens"),
        ("memory", sample(figures(), 1200 * MIB), OLD, PASSED, "1200 MiB of memory against 1000 MiB before"),
        ("memory", sample(figures(), 1500 * MIB), OLD, FAILED, "1.5 times; at most 1.3"),
        ("memory", sample(figures(), 90 * MIB), sample(figures(), 30 * MIB), PASSED, "3.0 times"),
        ("memory", sample(figures(), None), OLD, UNJUDGED, "new version is not known"),
        ("stable", sample(figures()), OLD, PASSED, "no process of the new version ended"),
        ("stable", VersionSample(exits=1), OLD, FAILED, "ended unexpectedly once"),
    ],
)
def test_each_gate(gate: str, new: VersionSample, old: VersionSample | None, outcome: GateOutcome, text: str) -> None:
    compared = Comparison(model="tiny", node_class="default", new=new, old=old)
    (verdict,) = [one for one in judge_versions([compared], GateSettings()) if one.gate == gate]
    assert (verdict.outcome, verdict.model, verdict.node_class) == (outcome, "tiny", "default")
    assert text in verdict.detail


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        pytest.param(figures(20), (figures(20), True), id="figures-from-the-time-of-the-rollout-are-preferred"),
        pytest.param(figures(19), (figures(500) + figures(19), False), id="too-few-are-added-to-those-from-before"),
        pytest.param(ServingFigures(), (figures(500), False), id="no-node-of-the-class-has-the-previous-version-left"),
    ],
)
def test_the_baseline(since: ServingFigures, expected: tuple[ServingFigures, bool]) -> None:
    assert pick_baseline(since, figures(500), GateSettings()) == expected


def test_a_verdict_names_its_baseline() -> None:
    compared = Comparison(model="m", node_class="c", new=OLD, old=OLD, at_the_same_time=True)
    details = {one.gate: one.detail for one in judge_versions([compared], GateSettings())}
    for gate in ("errors", "first_token", "throughput"):
        assert "on nodes with the previous version (" in details[gate]


def test_a_process_that_is_down_or_a_failed_load_is_unstable() -> None:
    compared = Comparison(model="m", node_class="c", new=VersionSample(), problems=("m#0 is not running now",))
    stable = judge_versions([compared], GateSettings())[0]
    assert (stable.gate, stable.outcome, stable.detail) == ("stable", FAILED, "m#0 is not running now")


BROKEN = "a load of m with it failed: no such option"


@pytest.mark.parametrize(
    ("changes", "outcome", "text"),
    [
        pytest.param(
            {"unrelated": (BROKEN,)}, PASSED, "not counted, because the previous", id="another-revision-serves"
        ),
        pytest.param({"unrelated": (BROKEN,), "ran": False}, UNJUDGED, "no such option", id="a-new-model"),
        pytest.param({"unrelated": (BROKEN,), "problems": ("m#0 is not running now",)}, FAILED, "m#0", id="both"),
    ],
)
def test_failures_of_what_the_previous_version_never_served_fail_no_gate(
    changes: dict[str, Any], outcome: GateOutcome, text: str
) -> None:
    stable = judge_versions([Comparison(model="m", node_class="c", new=OLD, old=OLD, **changes)], GateSettings())[0]
    assert (stable.gate, stable.outcome) == ("stable", outcome)
    assert text in stable.detail


def test_errors_of_a_model_that_the_previous_version_never_served_say_nothing() -> None:
    new, before = sample(figures(errors=100)), VersionSample()
    for served_before, outcome in ((True, FAILED), (False, UNJUDGED)):
        compared = Comparison(model="m", node_class="c", new=new, old=before, served_before=served_before)
        assert judge_versions([compared], GateSettings())[1].outcome is outcome


def test_a_version_that_no_model_uses_has_one_verdict() -> None:
    (verdict,) = judge_versions([Comparison(model="", node_class="c", new=VersionSample(), ran=False)], GateSettings())
    assert (verdict.gate, verdict.outcome) == ("stable", UNJUDGED)


@pytest.mark.parametrize(
    ("outcomes", "unjudged_passes", "passes"),
    [
        ((PASSED, UNJUDGED), True, True),
        ((PASSED, UNJUDGED), False, False),
        ((PASSED, FAILED), True, False),
        ((), False, True),
    ],
)
def test_unjudged_counts_as_the_setting_says(
    outcomes: tuple[GateOutcome, ...], unjudged_passes: bool, passes: bool
) -> None:
    verdicts = [GateVerdict(gate="errors", outcome=outcome, detail="") for outcome in outcomes]
    assert gates_pass(verdicts, GateSettings(unjudged_passes=unjudged_passes)) is passes


def test_settings_and_verdicts_are_json() -> None:
    settings = GateSettings(max_first_token_ratio=2.0)
    assert msgspec.json.decode(msgspec.json.encode(settings), type=GateSettings) == settings
    verdict = GateVerdict(gate="errors", outcome=FAILED, detail="x", new=0.5)
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=GateVerdict) == verdict


def test_settings_out_of_range_are_named() -> None:
    GateSettings().check()
    with pytest.raises(InvalidInput, match="min_throughput_ratio must be between 0 and 1"):
        GateSettings(min_throughput_ratio=2).check()
