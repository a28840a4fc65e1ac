"""Why a backend is as it is on a node."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.backends.test_drift import DELETED, DONE, HAS_NEW, HAS_OLD, NEW, OLD, policy, state
from core.backends.test_version_pins import pin
from corral.core.backends.build import BuildRef
from corral.core.backends.desired import NO_PREVIEWS
from corral.core.backends.drift import find_drift
from corral.core.backends.exhausted import exhausted_retry
from corral.core.backends.explain import BackendContext, ExplainedBackend, explain_backend
from corral.core.backends.intents import IntentState
from corral.core.backends.planning import NodeBackends
from corral.core.backends.policies import OnDrift, Policy
from corral.core.backends.upgrades import Unknown
from corral.core.nodes.observed import ObservedProcess, ProcessStatus
from corral.core.nodes.presence import Presence

SINCE = "1970-01-01 00:00:00 UTC"
OFFERED = BuildRef(name="cpu-echo", digest=NEW, version="1.3")
PINNED = [pin(OLD, 1, version="1.2")]
FAILED = replace(DONE, state=IntentState.DEAD_LETTERED, attempts=10, last_error="the disk is full", finished_at=0)
OLD_PROCESS = ObservedProcess(
    process_key="m#0", model="m", replica=0, backend="cpu-echo", digest=OLD, state=ProcessStatus.READY
)


def explained(
    node: NodeBackends,
    policies: Sequence[Policy] = (),
    offered: BuildRef | Unknown | None = OFFERED,
    processes: Sequence[ObservedProcess] = (),
    replacing: dict[str, str] | None = None,
) -> ExplainedBackend:
    context = BackendContext(
        policies=policies,
        previews=NO_PREVIEWS,
        requesters={DONE.operation_id: ("ann", 0)},
        retry=exhausted_retry(3600.0),
        replacing=replacing or {},
    )
    drifts = find_drift([node], policies, {node.node.id: processes})
    return explain_backend(node, "echo", drifts, offered, context)


@pytest.mark.parametrize(
    ("node", "policies", "words"),
    [
        pytest.param(state(HAS_NEW, spec=DONE), [], f"installed, by the install of ann at {SINCE}", id="a-request"),
        pytest.param(state(), [policy()], f"installed, by the policy for all nodes of me since {SINCE}", id="a-policy"),
        pytest.param(state(spec=DELETED), [], f"absent, by the delete of ann at {SINCE}", id="a-delete"),
        pytest.param(state(), [], "nothing: no policy and no request is about it on this node", id="nothing"),
        pytest.param(
            state(spec=replace(DONE, state=IntentState.CANCELLED)),
            [],
            "nothing: the last request was cancelled",
            id="cancelled",
        ),
        pytest.param(
            replace(state(spec=replace(DELETED, state=IntentState.CANCELLED, generation=20)), restored={"echo": DONE}),
            [],
            "; the newer delete was cancelled",
            id="restored",
        ),
    ],
)
def test_what_is_desired(node: NodeBackends, policies: list[Policy], words: str) -> None:
    assert words in explained(node, policies).desired


@pytest.mark.parametrize(
    ("node", "policies", "offered", "words"),
    [
        pytest.param(state(HAS_NEW, spec=DONE), [], OFFERED, "it is up to date", id="up-to-date"),
        pytest.param(
            state(HAS_OLD, spec=DONE),
            [],
            OFFERED,
            "1.3 available; `corral backends upgrade echo` installs it",
            id="not-requested",
        ),
        pytest.param(
            replace(state(HAS_OLD, spec=DONE), pins=PINNED),
            [],
            OFFERED,
            "held back: pinned to 1.2 since 1970-01-01 00:00 UTC by me (it crashed); 1.3 available",
            id="pinned",
        ),
        pytest.param(
            state(HAS_OLD, spec=replace(DONE, generation=10)),
            [policy(on_drift=OnDrift.FREEZE)],
            OFFERED,
            "held back: its policy freezes the version; 1.3 available",
            id="frozen",
        ),
        pytest.param(state(HAS_OLD, spec=DONE), [], Unknown("no answer"), "it is unknown whether", id="unknown"),
        pytest.param(state(spec=DONE), [], OFFERED, "", id="not-installed"),
    ],
)
def test_whether_an_upgrade_is_held_back(
    node: NodeBackends, policies: list[Policy], offered: BuildRef | Unknown, words: str
) -> None:
    assert explained(node, policies, offered).upgrade.startswith(words)


@pytest.mark.parametrize(
    ("node", "policies", "words"),
    [
        pytest.param(state(spec=DONE), [], "it is being corrected", id="soon"),
        pytest.param(
            state(HAS_OLD, spec=DONE, key_hash=None), [], "a LocalAI worker cannot go back to it", id="a-localai-worker"
        ),
        pytest.param(
            state(spec=DONE, presence=Presence.GONE), [], "the node is offline; it is corrected when", id="offline"
        ),
        pytest.param(state(), [policy(on_drift=OnDrift.REPORT)], "its policy only reports drift", id="by-decision"),
        pytest.param(
            state(spec=FAILED),
            [],
            "retries are exhausted: the disk is full; it is tried again at 1970-01-01 01:00:00 UTC, and at once when",
            id="exhausted",
        ),
        pytest.param(
            state(HAS_OLD, spec=replace(FAILED, final=True)),
            [],
            "retries are exhausted: the disk is full; it stopped the version that served",
            id="only-a-person",
        ),
    ],
)
def test_why_drift_is_not_corrected(node: NodeBackends, policies: list[Policy], words: str) -> None:
    (drift,) = explained(node, policies).drift
    assert drift.not_corrected.startswith(words)


def test_old_processes_are_explained_by_what_replaces_them() -> None:
    node = state(HAS_NEW, spec=DONE)
    (drift,) = explained(node, processes=[OLD_PROCESS]).drift
    assert drift.not_corrected == "the replica is replaced when one of the installed version serves"
    (drift,) = explained(node, processes=[OLD_PROCESS], replacing={"m#0": "a load replaces it: no memory"}).drift
    assert drift.not_corrected == "a load replaces it: no memory"


def test_build_version_and_last_change_are_told_together() -> None:
    intent = replace(DONE, spec=replace(DONE.spec, reason="fits this node (default)"))
    told = explained(replace(state(HAS_OLD, spec=intent), pins=PINNED))
    assert (told.build, told.build_reason, told.digest) == ("cpu-echo", "fits this node (default)", OLD)
    assert told.version_reason.startswith("pinned to 1.2 since")
    assert told.last_change == f"the install of ann at {SINCE} (operation {DONE.operation_id}) is done"
    failed = explained(state(spec=FAILED))
    assert failed.last_change.endswith("failed 10 times: the disk is full")
