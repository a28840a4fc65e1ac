"""Upgrades: which nodes have another build or version than they are offered, and where that is unknown."""

from dataclasses import replace

import pytest

from core.backends.test_drift import DONE, HAS_NEW, HAS_OLD, NEW, OLD, state
from core.backends.test_planning import FAMILY
from corral.core.backends.build import BuildRef
from corral.core.backends.upgrades import OutdatedNode, Unknown, find_unchecked, find_upgrades, installed_names
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import ObservedBackend

PLAIN = ObservedBackend(name="cpu-echo", digest=OLD, uri="https://files.test/echo.tar.gz")
V2 = BuildRef(name="cpu-echo", digest="", version="2.0", uris=("https://files.test/echo-2.tar.gz",))
SAME_PLACE = BuildRef(name="cpu-echo", digest="", version="", uris=(PLAIN.uri,))


@pytest.mark.parametrize(
    ("found", "offered", "expected"),
    [
        pytest.param(HAS_NEW, BuildRef(name="cpu-echo", digest=NEW, version=""), None, id="up-to-date"),
        pytest.param(HAS_OLD, BuildRef(name="cpu-echo", digest=NEW, version=""), "wrong_version", id="behind"),
        pytest.param(HAS_OLD, BuildRef(name="cuda-echo", digest=NEW, version=""), "wrong_variant", id="other-build"),
        pytest.param(
            replace(HAS_OLD, version="1"), BuildRef(name="cpu-echo", digest="", version="2"), "wrong_version",
            id="by-version-where-there-is-no-digest",
        ),
        pytest.param(PLAIN, V2, "wrong_version", id="an-entry-that-got-a-version-and-another-address"),
        pytest.param(PLAIN, replace(V2, version=""), "wrong_version", id="an-entry-that-got-another-address"),
        pytest.param(PLAIN, replace(V2, uris=(PLAIN.uri,)), "wrong_version", id="an-entry-that-got-a-version"),
        pytest.param(replace(PLAIN, version="2.0"), replace(V2, uris=("x", PLAIN.uri)), None, id="from-a-mirror"),
        pytest.param(replace(PLAIN, version="2.0"), V2, "wrong_version", id="the-same-version-from-elsewhere"),
        pytest.param(PLAIN, SAME_PLACE, "specifies a version or a digest", id="nothing-to-compare"),
        pytest.param(
            replace(PLAIN, uri="pypi://echo==1"), replace(SAME_PLACE, uris=("pypi://echo==1",)), None,
            id="a-package-that-never-changes",
        ),
        pytest.param(HAS_OLD, Unknown("the registry is unreachable"), "the registry is unreachable", id="unknown"),
    ],
)  # fmt: skip
def test_what_is_outdated_what_is_not_and_what_is_unknown(
    found: ObservedBackend, offered: BuildRef | Unknown, expected: str | None
) -> None:
    node = state(found, FAMILY, spec=DONE)
    offers = {("echo", node.node.id): offered}
    causes = [one.cause for upgrade in find_upgrades([node], offers).values() for one in upgrade.nodes]
    reasons = [one.reason for nodes in find_unchecked([node], offers).values() for one in nodes]
    if expected is None or expected.startswith("wrong"):
        assert (causes, reasons) == ([expected] if expected else [], [])
    else:
        assert (causes, len(reasons)) == ([], 1)
        assert expected in reasons[0]
    assert list(installed_names([node])) == ["echo"], "under the name it was installed by"


def test_a_localai_worker_that_reports_no_version_is_unchecked() -> None:
    node = state(replace(PLAIN, digest="", uri=""), spec=DONE, key_hash=None)
    offers = {("echo", node.node.id): V2}
    assert find_upgrades([node], offers) == {}
    assert len(find_unchecked([node], offers)["echo"]) == 1


def test_an_outdated_node_names_both_versions() -> None:
    node = state(replace(HAS_OLD, version="1"), FAMILY, spec=DONE)
    offers = {("echo", node.node.id): BuildRef(name="cpu-echo", digest=NEW, version="2")}
    assert find_upgrades([node], offers)["echo"].nodes == (
        OutdatedNode(
            node_id=NodeId("n"),
            node_name="n",
            version="1",
            digest=OLD,
            available_version="2",
            available_digest=NEW,
            cause="wrong_version",
        ),
    )


def test_offers_for_nodes_that_have_left_are_ignored() -> None:
    offers = {("echo", NodeId("gone")): BuildRef(name="cpu-echo", digest=NEW)}
    assert find_upgrades([state(HAS_OLD, FAMILY, spec=DONE)], offers) == {}
    assert find_unchecked([state(HAS_OLD, FAMILY, spec=DONE)], {("echo", NodeId("gone")): Unknown("x")}) == {}


@pytest.mark.parametrize(
    ("backends", "names"),
    [
        pytest.param([HAS_NEW, FAMILY], ["echo"], id="under-its-family"),
        pytest.param([HAS_NEW], ["cpu-echo"], id="without-a-family-under-its-own-name"),
        pytest.param([replace(HAS_NEW, is_system=True)], [], id="a-system-backend-is-not-ours"),
        pytest.param([FAMILY], [], id="a-family-alone-is-nothing"),
        pytest.param([], [], id="nothing-installed"),
    ],
)
def test_installed_names(backends: list[ObservedBackend], names: list[str]) -> None:
    assert list(installed_names([state(*backends)])) == names
