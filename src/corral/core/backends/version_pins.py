"""Version pins: which version of a backend is desired on a node, and why. `desired_version` is the only place that
decides it; a node without a pin follows the galleries: it gets the newest version when it installs or upgrades."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from corral.core.backends.build import short_digest
from corral.core.backends.intents import BackendSpec
from corral.core.backends.rollouts import HeldBack, find_held_back
from corral.core.nodes.labels import matches
from corral.core.nodes.node import Node
from corral.core.nodes.targets import Target, takes_backends


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
    """The pin that an operation sets for its target."""

    follows: bool = False
    """Whether it lets the target follow the galleries again, in spite of an older, wider pin."""
    version: str = ""
    """Empty where the version is known by its digests only."""
    specs: tuple[BackendSpec, ...] = ()
    """The exact version and its source, for each build."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPin:
    """One version of a backend for all nodes, those that a selector matches, or named ones."""

    id: str
    backend: str
    target: Target
    """Nodes by id."""
    follows: bool
    version: str
    specs: tuple[BackendSpec, ...]
    reason: str
    generation: int
    operation_id: str
    created_by: str
    created_at: int

    def spec_of(self, build: str) -> BackendSpec | None:
        return next((spec for spec in self.specs if spec.build.name == build), None)

    def is_about(self, backend: str, build: str) -> bool:
        """Whether it decides the version of this backend, by its name or by that of a build it has pinned."""
        return backend == self.backend or (build != "" and self.spec_of(build) is not None)

    def includes(self, node: Node) -> bool:
        return node.id in self.target.nodes if self.target.nodes else matches(node, self.target.selector)

    def label_of(self, build: str) -> str:
        """The version as people know it."""
        if self.version:
            return self.version
        spec = self.spec_of(build)
        return ", ".join(sorted(version_label(one) for one in ((spec,) if spec is not None else self.specs)))

    def describe(self, build: str) -> str:
        """`pinned to 1.2 since 2026-05-01 12:00 UTC by admin (rolled back from 1.3)`."""
        at = datetime.fromtimestamp(self.created_at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        why = f" ({self.reason})" if self.reason else ""
        return f"pinned to {self.label_of(build)} since {at} by {self.created_by}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredVersion:
    """Which version of one backend is desired on one node."""

    pin: VersionPin | None = None
    """None where the node follows the galleries."""
    spec: BackendSpec | None = None
    """The pinned version and its source. None where the node's build has yet to be looked up by the pin's version."""
    reason: str

    @property
    def version(self) -> str:
        """The pinned version's number, if it has one."""
        return self.pin.version if self.pin is not None else ""


FOLLOWS = DesiredVersion(reason="follows the galleries: no version is pinned")


def desired_version(
    node: Node, backend: str, build: str, pins: Iterable[VersionPin], held: Iterable[HeldBack] = ()
) -> DesiredVersion:
    """`build` is the name of the build that fits the node; empty where that is unknown. The newest matching pin
    decides. A pin that knows only digests says nothing about other builds: those follow the galleries. `held`: where a
    rollout has not reached the node with the pinned version, the version before is desired."""
    if not node.speaks_corral:
        return DesiredVersion(reason="a LocalAI worker installs the version that its gallery offers; pins do not apply")
    found = [pin for pin in pins if takes_backends(node) and pin.is_about(backend, build) and pin.includes(node)]
    newest = max(found, key=lambda pin: pin.generation, default=None)
    if newest is None:
        return FOLLOWS
    if newest.follows:
        return DesiredVersion(reason=f"follows the galleries, as {newest.created_by} requested")
    spec = newest.spec_of(build)
    if spec is None and not newest.version and build:
        return DesiredVersion(reason=f"follows the galleries: {newest.describe(build)} is about other builds")
    held_back = find_held_back(node, {build: spec}, held) if spec is not None else None
    if held_back is not None and held_back.change.previous.build.name == build:
        return DesiredVersion(pin=newest, spec=held_back.change.previous, reason=held_back.describe())
    return DesiredVersion(pin=newest, spec=spec, reason=newest.describe(build))


def version_label(spec: BackendSpec) -> str:
    """A version number, or the beginning of a digest."""
    return spec.build.version or short_digest(spec.build.digest)


def is_same_version(given: str, known: str) -> bool:
    """`v1.2` and `1.2` are one version."""
    return bool(given) and given.lower().removeprefix("v") == known.lower().removeprefix("v")


def merge_specs(before: Iterable[BackendSpec], new: Iterable[BackendSpec]) -> tuple[BackendSpec, ...]:
    """By build, the new one first: a pin of one build keeps what was pinned for the others."""
    by_build: Mapping[str, BackendSpec] = {spec.build.name: spec for spec in (*before, *new)}
    return tuple(spec for _, spec in sorted(by_build.items()))


def as_pinned(spec: BackendSpec, reference: str) -> BackendSpec:
    """The spec of an intent for a pinned version, under the reference that the node knows."""
    return replace(spec, reference=reference or spec.reference, pinned=True, force=False)
