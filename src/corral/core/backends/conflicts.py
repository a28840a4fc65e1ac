"""Desired states of different names that exclude each other: one installs a build, the other deletes its family."""

from corral.core.backends.intents import BackendSpec, Verb


def names_in(backend: str, spec: BackendSpec) -> frozenset[str]:
    """All names a spec applies to: the one it is kept under, the build's and the build's alias."""
    return frozenset({backend, spec.build.name, spec.build.alias}) - {""}


def exclude_each_other(one: tuple[Verb, frozenset[str]], other: tuple[Verb, frozenset[str]]) -> bool:
    """Whether one must be present and the other absent under a shared name."""
    return one[0].ensures_presence is not other[0].ensures_presence and not one[1].isdisjoint(other[1])
