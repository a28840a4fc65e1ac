"""Which desired states of different names exclude each other."""

import pytest

from corral.core.backends.build import BuildRef
from corral.core.backends.conflicts import exclude_each_other, names_in
from corral.core.backends.intents import BackendSpec, Verb


@pytest.mark.parametrize(
    ("build", "names"),
    [
        pytest.param(BuildRef(), {"echo"}, id="only-the-name-it-is-kept-under"),
        pytest.param(BuildRef(name="cpu-echo"), {"echo", "cpu-echo"}, id="and-the-build"),
        pytest.param(BuildRef(name="cpu-echo", alias="e"), {"echo", "cpu-echo", "e"}, id="and-its-alias"),
        pytest.param(BuildRef(name="echo", alias="echo"), {"echo"}, id="all-the-same"),
    ],
)
def test_names_in(build: BuildRef, names: set[str]) -> None:
    assert names_in("echo", BackendSpec(reference="ours@echo", build=build)) == names


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param((Verb.INSTALL, {"a", "b"}), (Verb.DELETE, {"b", "c"}), True, id="installed-and-deleted"),
        pytest.param((Verb.UPGRADE, {"a"}), (Verb.DELETE, {"a"}), True, id="upgraded-and-deleted"),
        pytest.param((Verb.ROLLBACK, {"a"}), (Verb.DELETE, {"a"}), True, id="rolled-back-and-deleted"),
        pytest.param((Verb.INSTALL, {"a"}), (Verb.DELETE, {"b"}), False, id="different-names"),
        pytest.param((Verb.INSTALL, {"a"}), (Verb.UPGRADE, {"a"}), False, id="both-present"),
        pytest.param((Verb.DELETE, {"a"}), (Verb.DELETE, {"a"}), False, id="both-absent"),
        pytest.param((Verb.INSTALL, set()), (Verb.DELETE, {"a"}), False, id="no-names"),
    ],
)
def test_exclude_each_other(one: tuple[Verb, set[str]], other: tuple[Verb, set[str]], expected: bool) -> None:
    first, second = (one[0], frozenset(one[1])), (other[0], frozenset(other[1]))
    assert exclude_each_other(first, second) is expected
    assert exclude_each_other(second, first) is expected, "in either intent"
