"""Drift: what differs from the wish, why, and which order would mend it."""

from dataclasses import replace
from typing import Any

import pytest

from core.backends.test_intents import intent
from corral.core.backends.build import BuildRef
from corral.core.backends.desired import find_unresolved_policies
from corral.core.backends.drift import DriftCause, find_drift, plan_corrections
from corral.core.backends.intents import BackendSpec, Intent, IntentState, Verb
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import Ensure, OnDrift, Policy
from corral.core.backends.variants import Unfit
from corral.core.nodes.node import Node, NodeClaim, NodeId, NodeType
from corral.core.nodes.observed import ObservedBackend, ObservedProcess
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


def policy(ensure: Ensure = Ensure.PRESENT, on_drift: OnDrift = OnDrift.HEAL, **fields: Any) -> Policy:
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
    ("node", "policies", "cause", "heals"),
    [
        pytest.param(state(HAS_NEW, spec=DONE), [], None, None, id="as-wanted"),
        pytest.param(state(spec=DONE), [], DriftCause.MISSING, Verb.INSTALL, id="a-wiped-disk"),
        pytest.param(state(HAS_OLD, spec=DONE), [], DriftCause.WRONG_VERSION, Verb.INSTALL, id="somebody-changed-it"),
        pytest.param(
            state(ObservedBackend(name="cuda-echo", alias="echo", digest=OLD), spec=DONE),
            [],
            DriftCause.WRONG_VARIANT,
            Verb.INSTALL,
            id="another-build",
        ),
        pytest.param(state(HAS_NEW, spec=DELETED), [], DriftCause.EXTRA, Verb.DELETE, id="it-came-back"),
        pytest.param(state(), [policy()], DriftCause.MISSING, Verb.INSTALL, id="a-new-machine"),
        pytest.param(
            state(ObservedBackend(name="echo")),
            [policy(Ensure.ABSENT)],
            DriftCause.EXTRA,
            Verb.DELETE,
            id="it-was-away",
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
            id="what-failed-until-its-retries-were-exhausted-is-shown-and-rests",
        ),
        pytest.param(state(spec=replace(DONE, state=IntentState.CANCELLED)), [], None, None, id="cancelled-is-no-wish"),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            None,
            None,
            id="an-install-that-was-called-off-is-not-given-again-by-its-policy",
        ),
        pytest.param(
            state(spec=replace(DONE, verb=Verb.UPGRADE, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            DriftCause.MISSING,
            Verb.INSTALL,
            id="a-wiped-disk-after-an-upgrade-that-was-called-off",
        ),
        pytest.param(
            state(HAS_OLD, spec=replace(DONE, verb=Verb.UPGRADE, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            None,
            None,
            id="an-upgrade-that-was-called-off-is-not-made-up-for",
        ),
        pytest.param(
            state(spec=replace(DELETED, state=IntentState.CANCELLED, generation=10)),
            [policy()],
            DriftCause.MISSING,
            Verb.INSTALL,
            id="a-delete-that-was-called-off-leaves-the-policy",
        ),
        pytest.param(
            state(spec=DONE, presence=Presence.GONE), [], DriftCause.MISSING, None, id="an-absent-node-gets-no-order"
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
def test_drift_and_its_healing(
    node: NodeBackends, policies: list[Policy], cause: DriftCause | None, heals: Verb | None
) -> None:
    assert [drift.cause for drift in find_drift([node], policies, {})] == ([] if cause is None else [cause])
    planned = plan_corrections([node], policies, now_ms=100_000, settle_ms=3000)
    assert [heal.verb for heal in planned] == ([] if heals is None else [heals])


def test_a_node_that_never_told_has_no_drift() -> None:
    silent = NodeBackends(node=machine(), backends=None, newest={"echo": DONE})
    assert find_drift([silent], [policy()], {}) == []
    assert plan_corrections([silent], [policy()], now_ms=100_000, settle_ms=0) == []


def test_a_process_of_the_version_before_is_shown() -> None:
    old = ObservedProcess(process_key="m#0", model="m", replica=0, backend="cpu-echo", digest=OLD, state="ready")
    new = replace(old, process_key="m#1", digest=NEW)
    over = replace(old, process_key="m#2", state="stopped")
    (drift,) = find_drift([state(HAS_NEW, spec=DONE)], [], {NodeId("n"): (old, new, over)})
    assert (drift.cause, drift.process_key) == (DriftCause.OLD_PROCESS, "m#0")


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
    ("node", "policies", "heals"),
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
            id="wanted-everywhere-and-found-there-under-the-alias",
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
            id="what-was-called-off-excludes-nothing",
        ),
        pytest.param(
            both(HAS_BUILD, build=None, family=replace(FAMILY_DELETED, state=IntentState.SUPERSEDED)),
            [],
            [],
            id="what-was-replaced-is-no-wish",
        ),
    ],
)
def test_the_newest_wish_holds_under_whichever_name(
    node: NodeBackends, policies: list[Policy], heals: list[tuple[str, Verb]]
) -> None:
    planned = plan_corrections([node], policies, now_ms=100_000, settle_ms=3000)
    assert [(heal.backend, heal.verb) for heal in planned] == heals
    assert {drift.backend for drift in find_drift([node], policies, {})} == {backend for backend, _ in heals}


def test_of_wishes_for_one_build_under_two_names_the_newest_says_which_version() -> None:
    """Both are to be there, and neither mends what the other has changed."""
    older = replace(BUILD, generation=20)
    newer = replace(DONE, generation=30, spec=spec_with(digest=OLD, uris=("y",)))
    as_wanted = both(replace(HAS_BUILD, digest=OLD), build=older, family=newer)
    assert find_drift([as_wanted], [], {}) == []
    assert plan_corrections([as_wanted], [], now_ms=100_000, settle_ms=3000) == []
    changed = both(HAS_BUILD, build=older, family=newer)
    assert [drift.backend for drift in find_drift([changed], [], {})] == ["echo"]
    wiped = plan_corrections([both(build=older, family=newer)], [], now_ms=100_000, settle_ms=3000)
    assert [(heal.backend, heal.spec.reference, heal.spec.build.digest) for heal in wiped] == [
        ("cpu-echo", "cpu-echo", OLD),
        ("echo", "echo", OLD),
    ]


@pytest.mark.parametrize(
    ("prospect", "deletes", "missing"),
    [
        pytest.param(None, [ABSENT], ["cpu-echo"], id="nobody-knows-yet"),
        pytest.param(frozenset({"cpu-echo", "echo"}), [ABSENT], [], id="a-build-of-a-family-deleted-since"),
        pytest.param(frozenset({"cpu-echo"}), [ABSENT], ["cpu-echo"], id="a-build-of-another"),
        pytest.param(
            frozenset({"cpu-echo", "echo"}), [replace(ABSENT, generation=3)], ["cpu-echo"], id="deleted-before-that"
        ),
        pytest.param(Unfit("arm only"), [], [], id="no-build-fits-the-node"),
    ],
)
def test_what_a_policy_rightly_does_not_bring_is_not_missing(
    prospect: frozenset[str] | Unfit | None, deletes: list[Policy], missing: list[str]
) -> None:
    wanted = policy(backend="cpu-echo", spec=BackendSpec(reference="cpu-echo"))
    (question,) = find_unresolved_policies([state()], [wanted, *deletes])
    assert (question.backend, question.node.id) == ("cpu-echo", "n")
    known = {} if prospect is None else {(question.backend, question.node.id): prospect}
    assert [drift.backend for drift in find_drift([state()], [wanted, *deletes], {}, known)] == missing


def test_only_what_a_policy_wants_and_the_node_lacks_is_an_open_question() -> None:
    asked = [state(HAS_ECHO), state(spec=replace(DONE, generation=10)), state(approved=False)]
    assert find_unresolved_policies(asked, [policy()]) == []
    assert find_unresolved_policies([state()], [policy(Ensure.ABSENT)]) == []
