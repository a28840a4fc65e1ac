"""Which version of a backend is desired on a node, and why."""

from dataclasses import replace

import pytest

from core.backends.test_drift import DONE, HAS_NEW, HAS_OLD, NEW, OLD, machine, policy, state
from corral.core.backends.build import BuildRef
from corral.core.backends.drift import DriftCause, find_drift, plan_corrections
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.version_pins import VersionPin, desired_version, is_same_version, merge_specs
from corral.core.nodes.node import Node
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.targets import Target


def pinned_spec(digest: str, build: str = "cpu-echo", version: str = "") -> BackendSpec:
    return BackendSpec(
        reference="echo", build=BuildRef(name=build, digest=digest, version=version, uris=("x",)), pinned=True
    )


def pin(
    digest: str,
    generation: int,
    build: str = "cpu-echo",
    *,
    version: str = "",
    follows: bool = False,
    nodes: tuple[str, ...] = (),
    **selector: str,
) -> VersionPin:
    return VersionPin(
        id=f"pin-{generation}",
        backend="echo",
        target=Target(selector=selector, nodes=nodes),
        follows=follows,
        version=version,
        specs=(pinned_spec(digest, build, version),) if digest else (),
        reason="it crashed",
        generation=generation,
        operation_id="o",
        created_by="me",
        created_at=0,
    )


FAST = machine(worker_labels={"tier": "fast"})
LOCALAI = machine(key_hash=None)


@pytest.mark.parametrize(
    ("node", "pins", "digest"),
    [
        pytest.param(FAST, [], None, id="none"),
        pytest.param(FAST, [pin(OLD, 1)], OLD, id="for-every-node"),
        pytest.param(FAST, [pin(OLD, 1, build="cuda-echo")], None, id="a-digest-of-another-build-follows"),
        pytest.param(FAST, [pin(OLD, 1, build="cuda-echo", version="1.2")], "", id="a-version-is-looked-up"),
        pytest.param(FAST, [pin(OLD, 1, tier="fast")], OLD, id="a-selector-that-matches"),
        pytest.param(machine(), [pin(OLD, 1, tier="fast")], None, id="one-that-does-not"),
        pytest.param(FAST, [pin(OLD, 1, nodes=("n",))], OLD, id="a-named-node"),
        pytest.param(FAST, [pin(OLD, 1, nodes=("m",))], None, id="another-named-node"),
        pytest.param(FAST, [pin("older", 2), pin(OLD, 1)], "older", id="the-newest"),
        pytest.param(machine(), [pin("older", 2, tier="fast"), pin(OLD, 1)], OLD, id="the-newest-that-matches"),
        pytest.param(FAST, [pin(OLD, 1), pin("", 2, follows=True, nodes=("n",))], None, id="it-follows-in-spite-of-it"),
        pytest.param(machine(approved=False), [pin(OLD, 1)], None, id="a-pending-node-gets-nothing"),
        pytest.param(LOCALAI, [pin(OLD, 1)], None, id="a-localai-worker-takes-what-its-gallery-offers"),
    ],
)
def test_desired_version(node: Node, pins: list[VersionPin], digest: str | None) -> None:
    desired = desired_version(node, "echo", "cpu-echo", pins)
    if digest is None:
        assert (desired.pin, desired.spec) == (None, None)
        assert "follows" in desired.reason or "LocalAI" in desired.reason
    else:
        assert desired.pin is not None
        assert (desired.spec.build.digest if desired.spec is not None else "") == digest
        assert desired.reason.startswith("pinned to ")


def test_a_pin_of_a_build_holds_whatever_name_the_backend_is_kept_under() -> None:
    assert desired_version(FAST, "cpu-echo", "cpu-echo", [pin(OLD, 1)]).spec == pinned_spec(OLD)
    assert desired_version(FAST, "other", "cpu-other", [pin(OLD, 1)]).pin is None


def test_a_pin_says_to_what_since_when_by_whom_and_why() -> None:
    assert pin(OLD, 1, version="1.2").describe("cpu-echo") == (
        "pinned to 1.2 since 1970-01-01 00:00 UTC by me (it crashed)"
    )
    assert pin("sha256:" + "a" * 64, 1).label_of("cpu-echo") == "sha256:aaaaaaaaaaaa"


HAS_1 = ObservedBackend(name="cpu-echo", digest=NEW, version="1")
DEAD = replace(DONE, state=IntentState.DEAD_LETTERED, verb=Verb.UPGRADE, finished_at=0)


@pytest.mark.parametrize(
    ("backends", "intent", "pins", "cause"),
    [
        pytest.param([HAS_NEW], DONE, [pin(NEW, 1)], None, id="as-pinned"),
        pytest.param([HAS_NEW], DONE, [pin(OLD, 1)], DriftCause.WRONG_VERSION, id="its-labels-changed-after-the-pin"),
        pytest.param([HAS_OLD], DONE, [pin(OLD, 1)], None, id="an-older-intent-does-not-override-a-pin"),
        pytest.param([], DONE, [pin(OLD, 1)], DriftCause.MISSING, id="wiped"),
        pytest.param(
            [replace(HAS_NEW, alias="echo")], None, [pin(OLD, 1)], DriftCause.WRONG_VERSION, id="by-policy-alone"
        ),
        pytest.param([HAS_1], DONE, [pin("", 1, version="2")], None, id="a-version-nobody-has-looked-up"),
        pytest.param([HAS_OLD], DEAD, [pin(OLD, 1)], None, id="a-failed-upgrade-that-is-no-longer-desired"),
        pytest.param([HAS_NEW], DEAD, [pin(OLD, 1)], DriftCause.WRONG_VERSION, id="what-failed-was-another-version"),
    ],
)
def test_a_pin_is_desired_state(
    backends: list[ObservedBackend], intent: Intent | None, pins: list[VersionPin], cause: DriftCause | None
) -> None:
    node: NodeBackends = replace(state(*backends, spec=intent), pins=pins)
    policies = [policy(generation=1)]
    assert [one.cause for one in find_drift([node], policies, {})] == ([cause] if cause else [])
    corrections = plan_corrections([node], policies, now_ms=100_000, settle_ms=3000)
    assert [one.spec.build.digest for one in corrections] == ([OLD] if cause else [])
    verb = Verb.INSTALL if cause is DriftCause.MISSING else Verb.UPGRADE
    assert all(one.resolved and one.spec.pinned and one.verb is verb for one in corrections)


def test_a_version_without_a_digest_is_compared_by_its_number() -> None:
    spec = BackendSpec(
        reference="echo", build=BuildRef(name="cpu-echo", version="2", uris=("pypi://e==2",)), pinned=True
    )
    pins = [replace(pin("", 1, version="2"), specs=(spec,))]
    drift = find_drift([replace(state(HAS_1, spec=DONE), pins=pins)], [], {})
    assert [(one.cause, one.detail) for one in drift] == [(DriftCause.WRONG_VERSION, "cpu-echo is at 1 instead of 2")]
    assert find_drift([replace(state(replace(HAS_1, version="v2"), spec=DONE), pins=pins)], [], {}) == []


@pytest.mark.parametrize(
    ("given", "known", "same"),
    [("1.2", "1.2", True), ("v1.2", "1.2", True), ("1.2", "V1.2", True), ("1.2", "1.20", False), ("", "", False)],
)
def test_one_version_has_two_spellings(given: str, known: str, same: bool) -> None:
    assert is_same_version(given, known) is same


def test_a_pin_of_one_build_keeps_what_was_pinned_for_the_others() -> None:
    cuda, cpu = pinned_spec(OLD, "cuda-echo"), pinned_spec(OLD)
    assert merge_specs([cuda, cpu], [pinned_spec(NEW)]) == (pinned_spec(NEW), cuda)
