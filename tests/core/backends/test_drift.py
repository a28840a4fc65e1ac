"""Drift: what differs from the desired state, why, and which intent corrects it."""

from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_intents import intent
from corral.core.backends.build import BuildRef
from corral.core.backends.desired import NO_PREVIEWS, find_unresolved_policies
from corral.core.backends.drift import (
    Correction,
    DriftCause,
    FleetSnapshot,
    find_drift,
    find_stuck,
    plan_corrections,
)
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, OnDrift, Policy
from corral.core.backends.variants import Unfit
from corral.core.nodes.node import Node, NodeClaim, NodeId, NodeType
from corral.core.nodes.observed import ObservedBackend, ObservedProcess, ProcessStatus
from corral.core.nodes.presence import Presence

NEW, OLD = "sha256:new", "sha256:old"


def machine(**fields: Any) -> Node:
    claim = NodeClaim(name="n", node_type=NodeType.BACKEND, address="", http_address="")
    plain = Node(
        id=NodeId("n"), name="n", node_type=claim.node_type, approved=True, drain_requested=False,
        worker_draining=False,
        presence=Presence.LIVE, presence_reason="", address="", http_address="", key_hash="h", instance=None, epoch=1,
        total_vram=None, available_vram=None, total_ram=None, available_ram=None, total_disk=None, available_disk=None,
        gpu_vendor=None, gpu_compute_capability=None, capability=None, max_replicas_reported=1,
        max_replicas_override=None, vram_budget_reported=None, vram_budget_override=None, worker_labels={},
        operator_labels={}, facts=None, conflict_message=None, conflict_at=None, last_heartbeat=0, bus_answered=True,
        bus_failures=0, bus_no_responders=False, created_at=0, changed_at=0,
    )  # fmt: skip
    return replace(plain, **fields)


def state(*backends: ObservedBackend, spec: Intent | None = None, **fields: Any) -> NodeBackends:
    return NodeBackends(node=machine(**fields), backends=list(backends), newest={"echo": spec} if spec else {})


def policy(ensure: Ensure = Ensure.PRESENT, on_drift: OnDrift = OnDrift.CORRECT, **fields: Any) -> Policy:
    plain = Policy(
        id="p", backend="echo", selector={}, ensure=ensure, spec=BackendSpec(reference="echo"), on_drift=on_drift,
        generation=9, operation_id="o", created_by="me", created_at=0, changed_at=0,
    )  # fmt: skip
    return replace(plain, **fields)


DONE = intent(
    state=IntentState.SUCCEEDED,
    finished_at=0,
    spec=BackendSpec(reference="echo", build=BuildRef(name="cpu-echo", digest=NEW, uris=("x",))),
)
DELETED = replace(DONE, verb=Verb.DELETE, spec=BackendSpec(reference="echo", build=BuildRef(name="cpu-echo")))
HAS_ECHO = ObservedBackend(name="echo")
JUST_DONE = replace(DONE, finished_at=99_000)
HAS_NEW = ObservedBackend(name="cpu-echo", digest=NEW)
HAS_OLD = ObservedBackend(name="cpu-echo", digest=OLD)


@pytest.mark.parametrize(
    ("node", "policies", "cause", "corrects"),
    [
        pytest.param(state(HAS_NEW, spec=DONE), [], None, None, id="as-desired"),
        pytest.param(state(spec=DONE), [], DriftCause.MISSING, Verb.INSTALL, id="a-wiped-disk"),
        pytest.param(state(HAS_OLD, spec=DONE), [], DriftCause.WRONG_VERSION, Verb.UPGRADE, id="somebody-changed-it"),
        pytest.param(
            state(HAS_OLD, spec=DONE, key_hash=None),
            [],
            DriftCause.WRONG_VERSION,
            None,
            id="a-localai-worker-cannot-go-back-to-a-version",
        ),
        pytest.param(
            state(spec=DONE, key_hash=None), [], DriftCause.MISSING, Verb.INSTALL, id="a-wiped-localai-worker"
        ),
        pytest.param(
            state(ObservedBackend(name="cuda-echo", alias="echo", digest=OLD), spec=DONE),
            [],
            DriftCause.WRONG_VARIANT,
            Verb.UPGRADE,
            id="another-build",
        ),
        pytest.param(state(HAS_NEW, spec=DELETED), [], DriftCause.EXTRA, Verb.DELETE, id="it-came-back"),
        pytest.param(state(), [policy()], DriftCause.MISSING, Verb.INSTALL, id="a-new-machine"),
        pytest.param(
            state(ObservedBackend(name="echo")),
            [policy(Ensure.ABSENT)],
            DriftCause.EXTRA,
            Verb.DELETE,
            id="deleted-while-the-node-was-offline",
        ),
        pytest.param(state(), [policy(on_drift=OnDrift.REPORT)], DriftCause.MISSING, None, id="only-reported"),
        pytest.param(state(), [policy(on_drift=OnDrift.FREEZE)], DriftCause.MISSING, None, id="frozen"),
        pytest.param(state(), [policy(selector={"a": "b"})], None, None, id="a-selector-that-does-not-fit"),
        pytest.param(
            state(spec=replace(DELETED, generation=10)), [policy()], None, None, id="deleted-here-after-the-policy"
        ),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.RUNNING)), [], None, None, id="what-is-being-done-is-no-drift"
        ),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.DEAD_LETTERED)),
            [],
            DriftCause.MISSING,
            None,
            id="exhausted-retries-are-shown-and-retried-later",
        ),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.CANCELLED)),
            [],
            None,
            None,
            id="a-cancelled-intent-desires-nothing",
        ),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            None,
            None,
            id="an-install-that-was-cancelled-is-not-given-again-by-its-policy",
        ),
        pytest.param(
            state(spec=replace(DONE, verb=Verb.UPGRADE, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            DriftCause.MISSING,
            Verb.INSTALL,
            id="a-wiped-disk-after-an-upgrade-that-was-cancelled",
        ),
        pytest.param(
            state(HAS_OLD, spec=replace(DONE, verb=Verb.UPGRADE, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            None,
            None,
            id="an-upgrade-that-was-cancelled-is-not-made-up-for",
        ),
        pytest.param(
            state(spec=replace(DELETED, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            DriftCause.MISSING,
            Verb.INSTALL,
            id="a-delete-that-was-cancelled-leaves-the-policy",
        ),
        pytest.param(
            state(spec=DONE, presence=Presence.GONE), [], DriftCause.MISSING, None, id="an-offline-node-gets-no-intent"
        ),
        pytest.param(
            state(spec=replace(DONE, finished_at=99_000)),
            [],
            DriftCause.MISSING,
            None,
            id="what-has-just-ended-settles",
        ),
        pytest.param(state(approved=False), [policy()], None, None, id="a-pending-node-gets-nothing"),
        pytest.param(state(node_type=NodeType.AGENT), [policy()], None, None, id="an-agent-gets-nothing"),
        pytest.param(state(HAS_NEW), [], None, None, id="what-nobody-asked-about-is-not-ours"),
    ],
)
def test_drift_and_its_correction(
    node: NodeBackends, policies: list[Policy], cause: DriftCause | None, corrects: Verb | None
) -> None:
    assert [drift.cause for drift in find_drift([node], policies, {})] == ([] if cause is None else [cause])
    planned = plan_corrections([node], policies, now_ms=100_000, settle_ms=3000)
    assert [one.verb for one in planned] == ([] if corrects is None else [corrects])


@pytest.mark.parametrize(("held", "cause"), [(True, [DriftCause.MISSING]), (False, [])])
def test_a_backend_that_is_lost_while_its_node_waits_for_its_wave_is_reported(
    held: bool, cause: list[DriftCause]
) -> None:
    waiting = replace(DONE, state=IntentState.PENDING, verb=Verb.UPGRADE, held=held)
    found = find_drift([state(spec=waiting)], [], {})
    assert [one.cause for one in found] == cause
    assert all("waits for its wave of a rollout" in one.detail for one in found)
    assert find_drift([state(HAS_OLD, spec=waiting)], [], {}) == [], "it still has the version before"
    assert plan_corrections([state(spec=waiting)], [], now_ms=100_000, settle_ms=3000) == []


def test_a_node_that_never_reported_has_no_drift() -> None:
    silent = NodeBackends(node=machine(), backends=None, newest={"echo": DONE})
    assert find_drift([silent], [policy()], {}) == []
    assert plan_corrections([silent], [policy()], now_ms=100_000, settle_ms=0) == []


def test_a_process_of_the_version_before_is_shown() -> None:
    old = ObservedProcess(
        process_key="m#0", model="m", replica=0, backend="cpu-echo", digest=OLD, state=ProcessStatus.READY
    )
    new = replace(old, process_key="m#1", digest=NEW)
    over = replace(old, process_key="m#2", state=ProcessStatus.STOPPED)
    (drift,) = find_drift([state(HAS_NEW, spec=DONE)], [], {NodeId("n"): (old, new, over)})
    assert (drift.cause, drift.process_key) == (DriftCause.OLD_PROCESS, "m#0")


CUDA = ObservedBackend(name="cuda-echo", digest=NEW)
POINTS_TO_CUDA = ObservedBackend(name="echo", is_meta=True, concrete="cuda-echo")


@pytest.mark.parametrize(
    ("process", "shown"),
    [
        pytest.param({"model": "named"}, True, id="of-a-model-that-names-the-family"),
        pytest.param({"model": "other"}, False, id="of-a-model-that-names-the-build"),
        pytest.param({"model": "named", "backend": "cuda-echo", "digest": NEW}, False, id="of-the-build-that-is-there"),
        pytest.param({"model": "named", "state": ProcessStatus.STOPPED}, False, id="not-running-any-more"),
    ],
)
def test_a_process_of_the_build_before_is_shown(process: dict[str, Any], shown: bool) -> None:
    before = ObservedProcess(
        process_key="m#0", model="m", replica=0, backend="cpu-echo", digest=OLD, state=ProcessStatus.READY
    )
    node = state(HAS_OLD, CUDA, POINTS_TO_CUDA, spec=replace(DONE, spec=replace(DONE.spec, build=BuildRef())))
    running = {NodeId("n"): (replace(before, **process),)}
    found = find_drift([node], [], running, models={"echo": frozenset({"named"})})
    assert [one.cause for one in found] == ([DriftCause.OLD_PROCESS] if shown else [])
    assert all(one.detail == "m#0 runs cpu-echo sha256:old instead of cuda-echo" for one in found)


FAMILY_DELETED = replace(DELETED, generation=10)


def spec_with(reference: str = "echo", **build: Any) -> BackendSpec:
    return replace(DONE.spec, reference=reference, build=replace(DONE.spec.build, **build))


BUILD = replace(DONE, backend="cpu-echo", spec=spec_with("cpu-echo", alias="echo"))
HAS_BUILD = replace(HAS_NEW, alias="echo")
ABSENT = policy(Ensure.ABSENT, generation=10)


def both(*backends: ObservedBackend, build: Intent | None, family: Intent | None) -> NodeBackends:
    newest = {name: one for name, one in (("cpu-echo", build), ("echo", family)) if one is not None}
    return NodeBackends(node=machine(), backends=list(backends), newest=newest)


@pytest.mark.parametrize(
    ("node", "policies", "corrects"),
    [
        pytest.param(
            both(HAS_BUILD, build=replace(BUILD, generation=20), family=FAMILY_DELETED), [], [], id="a-build-came-later"
        ),
        pytest.param(
            both(HAS_BUILD, build=replace(BUILD, generation=5), family=FAMILY_DELETED),
            [],
            [("echo", Verb.DELETE)],
            id="a-build-came-before",
        ),
        pytest.param(
            both(build=replace(BUILD, generation=5), family=FAMILY_DELETED), [], [], id="and-does-not-come-back"
        ),
        pytest.param(
            both(build=replace(BUILD, generation=20), family=FAMILY_DELETED),
            [],
            [("cpu-echo", Verb.INSTALL)],
            id="a-later-build-comes-back",
        ),
        pytest.param(
            both(HAS_BUILD, build=replace(BUILD, generation=20), family=None), [ABSENT], [], id="deleted-everywhere"
        ),
        pytest.param(
            both(HAS_BUILD, build=None, family=None),
            [ABSENT, policy(backend="cpu-echo", spec=BackendSpec(reference="cpu-echo"), generation=20)],
            [],
            id="desired-everywhere-and-found-there-under-the-alias",
        ),
        pytest.param(
            both(HAS_BUILD, build=replace(DELETED, backend="cpu-echo", generation=30), family=FAMILY_DELETED),
            [],
            [("cpu-echo", Verb.DELETE), ("echo", Verb.DELETE)],
            id="both-deleted",
        ),
        pytest.param(
            both(
                replace(HAS_BUILD, name="mine"),
                build=replace(BUILD, generation=20, state=IntentState.CANCELLED),
                family=FAMILY_DELETED,
            ),
            [],
            [("echo", Verb.DELETE)],
            id="what-was-cancelled-excludes-nothing",
        ),
        pytest.param(
            both(HAS_BUILD, build=None, family=replace(FAMILY_DELETED, state=IntentState.SUPERSEDED)),
            [],
            [],
            id="a-superseded-intent-desires-nothing",
        ),
    ],
)
def test_the_newest_intent_holds_under_whichever_name(
    node: NodeBackends, policies: list[Policy], corrects: list[tuple[str, Verb]]
) -> None:
    planned = plan_corrections([node], policies, now_ms=100_000, settle_ms=3000)
    assert [(one.backend, one.verb) for one in planned] == corrects
    assert {drift.backend for drift in find_drift([node], policies, {})} == {backend for backend, _ in corrects}


def test_of_intents_for_one_build_under_two_names_the_newest_decides_the_version() -> None:
    """Both must be present, and neither corrects what the other has changed."""
    older = replace(BUILD, generation=20)
    newer = replace(DONE, generation=30, spec=spec_with(digest=OLD, uris=("y",)))
    as_desired = both(replace(HAS_BUILD, digest=OLD), build=older, family=newer)
    assert find_drift([as_desired], [], {}) == []
    assert plan_corrections([as_desired], [], now_ms=100_000, settle_ms=3000) == []
    changed = both(HAS_BUILD, build=older, family=newer)
    assert [drift.backend for drift in find_drift([changed], [], {})] == ["echo"]
    wiped = plan_corrections([both(build=older, family=newer)], [], now_ms=100_000, settle_ms=3000)
    assert [(one.backend, one.spec.reference, one.spec.build.digest) for one in wiped] == [
        ("cpu-echo", "cpu-echo", OLD),
        ("echo", "echo", OLD),
    ]


@pytest.mark.parametrize(
    ("preview", "deletes", "missing"),
    [
        pytest.param(None, [ABSENT], ["cpu-echo"], id="before-the-preview"),
        pytest.param(frozenset({"cpu-echo", "echo"}), [ABSENT], [], id="a-build-of-a-family-deleted-since"),
        pytest.param(frozenset({"cpu-echo"}), [ABSENT], ["cpu-echo"], id="a-build-of-another"),
        pytest.param(
            frozenset({"cpu-echo", "echo"}), [replace(ABSENT, generation=3)], ["cpu-echo"], id="deleted-before-that"
        ),
        pytest.param(Unfit("arm only"), [], [], id="no-build-fits-the-node"),
    ],
)
def test_what_a_policy_rightly_does_not_install_is_not_missing(
    preview: frozenset[str] | Unfit | None, deletes: list[Policy], missing: list[str]
) -> None:
    wanted = policy(backend="cpu-echo", spec=BackendSpec(reference="cpu-echo"))
    (question,) = find_unresolved_policies([state()], [wanted, *deletes])
    assert (question.backend, question.node.id) == ("cpu-echo", "n")
    known = {} if preview is None else {(question.backend, question.node.id): preview}
    assert [drift.backend for drift in find_drift([state()], [wanted, *deletes], {}, known)] == missing


def test_only_a_policy_whose_backend_is_missing_is_unresolved() -> None:
    asked = [state(HAS_ECHO), state(spec=replace(DONE, generation=10)), state(approved=False)]
    assert find_unresolved_policies(asked, [policy()]) == []
    assert find_unresolved_policies([state()], [policy(Ensure.ABSENT)]) == []


@pytest.mark.parametrize(
    ("node", "detail"),
    [
        pytest.param(state(spec=DONE), "cpu-echo is not installed", id="missing"),
        pytest.param(state(HAS_NEW, spec=DELETED), "cpu-echo was deleted but is installed", id="extra"),
        pytest.param(state(HAS_OLD, spec=DONE), "cpu-echo is at sha256:old instead of sha256:new", id="wrong-version"),
        pytest.param(
            state(ObservedBackend(name="cuda-echo", alias="echo", digest=OLD), spec=DONE),
            "cuda-echo is installed instead of cpu-echo",
            id="wrong-variant",
        ),
    ],
)
def test_drift_in_words(node: NodeBackends, detail: str) -> None:
    (drift,) = find_drift([node], [], {})
    assert (drift.detail, drift.node_id, drift.backend) == (detail, node.node.id, "echo")


@pytest.mark.parametrize(
    ("found", "drifts"),
    [
        pytest.param(HAS_NEW, False, id="the-desired-version"),
        pytest.param(replace(HAS_NEW, digest=""), False, id="a-localai-worker-reports-no-digest"),
        pytest.param(ObservedBackend(name="echo", digest=NEW), False, id="the-same-bytes-under-the-family-name"),
        pytest.param(HAS_OLD, True, id="another-version"),
    ],
)
def test_versions_are_compared_by_digest(found: ObservedBackend, drifts: bool) -> None:
    assert bool(find_drift([state(found, spec=DONE)], [], {})) is drifts


TRIED_ROLLBACK = replace(DONE, verb=Verb.ROLLBACK, state=IntentState.PENDING, attempts=1)


@pytest.mark.parametrize(
    ("node", "corrected"),
    [
        pytest.param(state(spec=TRIED_ROLLBACK), True, id="a-rollback-on-a-wiped-disk-becomes-an-install"),
        pytest.param(state(HAS_OLD, spec=TRIED_ROLLBACK), False, id="elsewhere-it-is-retried"),
        pytest.param(
            state(spec=replace(TRIED_ROLLBACK, attempts=0)), False, id="before-its-first-attempt-it-may-succeed"
        ),
        pytest.param(
            state(spec=replace(TRIED_ROLLBACK, state=IntentState.RUNNING)), False, id="while-it-is-running-as-well"
        ),
        pytest.param(state(spec=replace(TRIED_ROLLBACK, verb=Verb.UPGRADE)), False, id="an-upgrade-installs-by-itself"),
    ],
)
def test_a_live_intent_is_left_alone_except_a_rollback_without_versions(node: NodeBackends, corrected: bool) -> None:
    planned = plan_corrections([node], [], now_ms=100_000, settle_ms=0)
    assert [(one.verb, one.spec.build.digest) for one in planned] == ([(Verb.INSTALL, NEW)] if corrected else [])


@pytest.mark.parametrize(
    ("status", "corrected"),
    [
        pytest.param({}, True, id="healthy"),
        pytest.param({"presence": Presence.SUSPECT}, False, id="unhealthy"),
        pytest.param({"presence": Presence.JOINING}, False, id="joining"),
        pytest.param({"presence": Presence.LEFT}, False, id="left"),
        pytest.param({"drain_requested": True}, False, id="draining"),
    ],
)
def test_only_healthy_nodes_are_corrected(status: dict[str, Any], corrected: bool) -> None:
    assert bool(plan_corrections([state(spec=DONE, **status)], [], now_ms=100_000, settle_ms=0)) is corrected


@pytest.mark.parametrize(
    ("finished_at", "now_ms", "by_policy", "corrected"),
    [
        pytest.param(90_000, 92_999, False, False, id="an-intent-that-has-just-ended-settles"),
        pytest.param(90_000, 93_000, False, True, id="then-it-is-corrected"),
        pytest.param(90_000, 90_001, True, True, id="a-newer-policy-need-not-wait"),
    ],
)
def test_settling(finished_at: int, now_ms: int, by_policy: bool, corrected: bool) -> None:
    node = state(spec=replace(DONE, finished_at=finished_at))
    policies = [policy(generation=20)] if by_policy else []
    assert bool(plan_corrections([node], policies, now_ms=now_ms, settle_ms=3000)) is corrected


def test_a_correction_carries_what_it_was_planned_on() -> None:
    (by_intent,) = plan_corrections([state(spec=DONE)], [], now_ms=100_000, settle_ms=0)
    assert by_intent == Correction(
        node_id=NodeId("n"),
        backend="echo",
        verb=Verb.INSTALL,
        spec=DONE.spec,
        resolved=True,
        expected_generation=DONE.generation,
        desired_generation=DONE.generation,
    )
    (by_policy,) = plan_corrections([state(spec=DONE)], [policy(generation=20)], now_ms=100_000, settle_ms=0)
    assert (by_policy.expected_generation, by_policy.desired_generation, by_policy.resolved) == (7, 20, False)
    (first,) = plan_corrections([state()], [policy()], now_ms=100_000, settle_ms=0)
    assert first.expected_generation is None


def test_a_snapshot_finds_the_same_drift() -> None:
    nodes = [state(spec=DONE), state(HAS_NEW)]
    snapshot = FleetSnapshot(states=nodes, policies=[policy(Ensure.ABSENT)], processes={}, previews=NO_PREVIEWS)
    assert snapshot.find_drift() == find_drift(nodes, [policy(Ensure.ABSENT)], {})


@pytest.mark.parametrize(
    ("fields", "is_stuck"),
    [
        pytest.param({}, True, id="a-failed-install-of-a-looked-up-version"),
        pytest.param({"verb": Verb.UPGRADE}, True, id="and-an-upgrade"),
        pytest.param({"attempts": 0}, False, id="not-before-it-has-failed"),
        pytest.param({"state": IntentState.RUNNING}, False, id="not-while-it-is-running"),
        pytest.param({"state": IntentState.DEAD_LETTERED}, False, id="not-after-its-retries-were-exhausted"),
        pytest.param({"verb": Verb.ROLLBACK}, False, id="a-rollback-needs-no-source"),
        pytest.param({"spec": spec_with(digest="")}, False, id="without-a-digest"),
        pytest.param({"spec": spec_with(uris=())}, False, id="without-a-source"),
        pytest.param({"spec": replace(DONE.spec, uri="r/e@sha256:abc")}, True, id="a-version-that-a-person-named"),
    ],
)
def test_find_stuck(fields: dict[str, Any], is_stuck: bool) -> None:
    tried = replace(DONE, **{"state": IntentState.PENDING, "attempts": 1, **fields})
    assert find_stuck([state(spec=tried)]) == ([tried] if is_stuck else [])
    assert find_stuck([state(spec=tried, presence=Presence.GONE)]) == []


@pytest.mark.parametrize(
    ("on_drift", "corrected"), [(OnDrift.CORRECT, True), (OnDrift.REPORT, False), (OnDrift.FREEZE, False)]
)
@pytest.mark.parametrize(
    ("node", "cause"),
    [
        (state(spec=DONE), DriftCause.MISSING),
        (state(HAS_OLD, spec=DONE), DriftCause.WRONG_VERSION),
        (state(ObservedBackend(name="cuda-echo", alias="echo", digest=OLD), spec=DONE), DriftCause.WRONG_VARIANT),
        (state(HAS_NEW, spec=DELETED), DriftCause.EXTRA),
    ],
)
def test_every_cause_is_reported_and_corrected_only_if_the_policy_says_so(
    node: NodeBackends, cause: DriftCause, on_drift: OnDrift, corrected: bool
) -> None:
    policies = [policy(on_drift=on_drift, generation=3)]
    assert [(one.cause, one.on_drift) for one in find_drift([node], policies, {})] == [(cause, on_drift)]
    assert bool(plan_corrections([node], policies, now_ms=100_000, settle_ms=0)) is corrected


@pytest.mark.parametrize(
    ("found", "process_digest", "process_state", "drifts"),
    [
        pytest.param(HAS_NEW, OLD, "ready", True, id="serving-the-version-before"),
        pytest.param(HAS_NEW, OLD, "starting", True, id="starting-the-version-before"),
        pytest.param(HAS_NEW, OLD, "failed", False, id="not-running-any-more"),
        pytest.param(HAS_NEW, NEW, "ready", False, id="serving-the-current-version"),
        pytest.param(HAS_NEW, "", "ready", False, id="of-an-unknown-version"),
        pytest.param(replace(HAS_NEW, digest=""), OLD, "ready", False, id="the-node-reports-no-digest"),
    ],
)
def test_old_processes_are_reported_and_never_corrected_by_an_intent(
    found: ObservedBackend, process_digest: str, process_state: str, drifts: bool
) -> None:
    process = ObservedProcess(
        process_key="m#0",
        model="m",
        replica=0,
        backend="cpu-echo",
        digest=process_digest,
        state=ProcessStatus(process_state),
    )
    node = state(found, spec=DONE)
    causes = [one.cause for one in find_drift([node], [], {NodeId("n"): (process,)})]
    assert causes == ([DriftCause.OLD_PROCESS] if drifts else [])
    assert plan_corrections([node], [], now_ms=100_000, settle_ms=0) == []
