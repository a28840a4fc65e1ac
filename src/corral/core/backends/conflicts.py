"""Wishes kept under different names that cannot both be true: that a build be there, and that its family be away."""

from corral.core.backends.intents import BackendSpec, Verb


def names_in(backend: str, spec: BackendSpec) -> frozenset[str]:
    """All that the wish speaks of: the name it is kept under, the build, and the alias of that."""
    return frozenset({backend, spec.name, spec.alias}) - {""}


def exclude_each_other(one: tuple[Verb, frozenset[str]], other: tuple[Verb, frozenset[str]]) -> bool:
    return one[0].ensures_presence is not other[0].ensures_presence and not one[1].isdisjoint(other[1])
