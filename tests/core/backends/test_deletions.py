"""Where a delete keeps a backend away: the same wishes that desired state heals by."""

from dataclasses import replace

import pytest

from core.backends.test_drift import BUILD, DELETED, DONE, machine, policy
from corral.core.backends.deletions import DeletedBackends, names_of_installed
from corral.core.backends.intents import Intent, IntentState
from corral.core.backends.policies import Ensure, OnDrift, Policy
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend

HERE = NodeId("n")
FLEET_WIDE = policy(Ensure.ABSENT, created_by="ann", created_at=0)
LATER = FLEET_WIDE.generation + 1


def reason(policies: list[Policy], *intents: Intent, names: frozenset[str] = frozenset({"echo"})) -> str:
    deletes = DeletedBackends(policies=policies, intents=intents, requesters={DELETED.operation_id: ("bob", 0)})
    found = deletes.find([machine()], {HERE: names})
    return found[HERE].reason if found else ""


@pytest.mark.parametrize(
    ("policies", "intents", "names", "by"),
    [
        pytest.param([], [], {"echo"}, "", id="nobody-deleted-it"),
        pytest.param([FLEET_WIDE], [], {"echo"}, "ann", id="everywhere"),
        pytest.param([FLEET_WIDE], [replace(DELETED, generation=9)], {"echo"}, "ann", id="everywhere-and-done"),
        pytest.param([], [DELETED], {"echo"}, "bob", id="here"),
        pytest.param([], [replace(DELETED, state=IntentState.RUNNING)], {"echo"}, "bob", id="just-now"),
        pytest.param([], [replace(DELETED, state=IntentState.CANCELLED)], {"echo"}, "", id="called-off"),
        pytest.param([], [DELETED], {"other"}, "", id="another-backend"),
        pytest.param([], [DELETED], {"engine", "cpu-echo"}, "bob", id="by-its-build"),
        pytest.param([FLEET_WIDE], [], {"cpu-echo", "echo"}, "ann", id="by-its-family"),
        pytest.param([FLEET_WIDE], [replace(DONE, generation=LATER)], {"echo"}, "", id="installed-here-again"),
        pytest.param([policy(generation=LATER)], [DELETED], {"echo"}, "", id="installed-everywhere-again"),
        pytest.param([policy()], [replace(DELETED, generation=LATER)], {"echo"}, "bob", id="deleted-after-an-install"),
        pytest.param(
            [FLEET_WIDE], [replace(BUILD, generation=LATER)], {"echo"}, "", id="a-build-of-it-installed-since"
        ),
        pytest.param(
            [FLEET_WIDE], [replace(BUILD, generation=1)], {"echo"}, "ann", id="a-build-of-it-installed-before"
        ),
        pytest.param([replace(FLEET_WIDE, selector={"a": "b"})], [], {"echo"}, "", id="from-other-machines"),
        pytest.param([replace(FLEET_WIDE, on_drift=OnDrift.REPORT)], [], {"echo"}, "ann", id="not-healed-but-wanted"),
    ],
)
def test_find_deletions(policies: list[Policy], intents: list[Intent], names: set[str], by: str) -> None:
    said = reason(policies, *intents, names=frozenset(names))
    assert (f" by {by} " in said) if by else said == ""


def test_the_reason_names_the_command_that_installs_it_again() -> None:
    assert reason([FLEET_WIDE]) == (
        "its backend echo was deleted by ann at 1970-01-01 00:00:00 UTC;"
        " install it again with `corral backends install echo`"
    )
    assert reason([], DELETED) == (
        "its backend echo was deleted from n by bob at 1970-01-01 00:00:00 UTC;"
        " install it again with `corral backends install echo --node n`"
    )


def test_of_two_deletes_the_later_one_is_named() -> None:
    build = replace(DELETED, backend="zcpu-echo", generation=LATER)
    names = frozenset({"echo", "zcpu-echo"})
    assert "its backend zcpu-echo was deleted from n by bob" in reason([FLEET_WIDE], build, names=names)
    assert "its backend echo was deleted by ann" in reason([FLEET_WIDE], replace(build, generation=1), names=names)


def test_marks_differ_when_it_is_installed_again() -> None:
    deleted, again = DeletedBackends(policies=[FLEET_WIDE]), DeletedBackends(policies=[policy(generation=LATER)])
    assert (bool(deleted), bool(again)) == (True, False)
    assert deleted.marks() != again.marks()
    assert DeletedBackends(intents=[DELETED]).marks() != DeletedBackends().marks()


def test_all_names_of_a_build() -> None:
    build = ObservedBackend(name="cpu-echo", alias="echo")
    family = ObservedBackend(name="family", is_meta=True, concrete="cpu-echo")
    assert names_of_installed([build, family], build) == {"cpu-echo", "echo", "family"}
