"""The builds that installs, loads and corrections use: what the galleries offer, in the version that is desired."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from corral.artifacts.oci.pins import pinned_uri
from corral.controller.backends.resolve import Resolver, spec_of
from corral.core.backends.build import BuildRef, BuildResolution, ResolvedBackend, plain_name
from corral.core.backends.intents import BackendSpec
from corral.core.backends.planning import NodeBackends, match_digest
from corral.core.backends.rollouts import HeldBack, find_held_back
from corral.core.backends.variants import Unresolved
from corral.core.backends.version_pins import VersionPin, desired_version, is_same_version, version_label
from corral.core.errors import CorralError, NotFound
from corral.core.nodes.node import Node, NodeId
from corral.store.backends.intents import IntentStore
from corral.store.backends.rollouts import RolloutStore
from corral.store.backends.version_pins import VersionPinStore

DIGEST_LENGTH = len("sha256:") + 64


@dataclass(frozen=True, slots=True)
class OfferedBuild:
    """A build in the version that its source offers now."""

    source: BackendSpec
    """What was requested: a reference, or a location outside the galleries."""
    resolved: ResolvedBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVersion:
    """What people call a version, for each build."""

    version: str
    """Empty where a digest was given."""
    specs: Mapping[str, BackendSpec]
    problems: Mapping[str, str]
    """By build: why it does not have the version."""


class FleetBuilds:
    def __init__(self, resolver: Resolver, pins: VersionPinStore, intents: IntentStore, rollouts: RolloutStore) -> None:
        self._resolver, self._pins, self._intents, self._rollouts = resolver, pins, intents, rollouts

    async def recall(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, BuildResolution | Unresolved]:
        """By node. Falls back to the last known answer while a gallery or registry cannot be reached."""
        nodes = list(nodes)
        found = await self._resolver.recall(reference, nodes)
        return await self.in_desired_version(BackendSpec(reference=reference), plain_name(reference), nodes, found)

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> dict[NodeId, frozenset[str]]:
        """By node: name and alias of the build it would get. No registry is asked."""
        return await self._resolver.find_names(reference, nodes)

    def galleries_text(self, reference: str) -> str:
        """The galleries in which a worker that looks names up itself finds the reference."""
        return self._resolver.galleries_text(reference)

    async def in_desired_version(
        self,
        source: BackendSpec,
        backend: str,
        nodes: Iterable[Node],
        found: Mapping[NodeId, BuildResolution | Unresolved],
    ) -> dict[NodeId, BuildResolution | Unresolved]:
        """The same builds: on nodes with a pin in the pinned version, and instead of a version that a rollout has not
        accepted in the one before it."""
        answers = dict(found)
        pins, held = await self._pins.read_all(), await self._rollouts.read_held_back()
        # First those that change only the version: a node that joins rather gets its own build.
        held.sort(key=lambda one: one.change.previous.build.name != one.change.build)
        looked_up: dict[tuple[str, str], ResolvedBackend | Unresolved] = {}
        for node in nodes if pins or held else ():
            resolved = found[node.id]
            if not isinstance(resolved, ResolvedBackend):
                continue
            desired = desired_version(node, backend, resolved.build.name, pins, held)
            if desired.pin is None and node.speaks_corral:
                offered = spec_of(resolved, reference=source.reference, uri=source.uri)
                held_back = find_held_back(node, {resolved.build.name: offered}, held)
                if held_back is not None:
                    answers[node.id] = in_previous_version(resolved, held_back)
            elif desired.spec is not None:
                answers[node.id] = with_version(resolved, desired.spec)
            elif desired.pin is not None:
                key = (desired.pin.id, resolved.build.name)
                if key not in looked_up:
                    looked_up[key] = await self._look_up(source, resolved, desired.pin)
                answers[node.id] = looked_up[key]
        return answers

    async def _look_up(
        self, source: BackendSpec, resolved: ResolvedBackend, pin: VersionPin
    ) -> ResolvedBackend | Unresolved:
        """For a build that the pin does not know yet: its digest is stored with the pin."""
        build = resolved.build.name
        try:
            spec = await self._spec_at_source(source, resolved, version=pin.version)
        except CorralError as error:
            return Unresolved(NotFound(f"{build} is {pin.describe(build)}, but {error}"))
        await self._pins.save_build(pin.id, spec, reason=f"{build} joined")
        return with_version(resolved, spec)

    async def replace_gone(self, spec: BackendSpec, backend: str) -> BackendSpec:
        """For an exact version whose source no longer has its digest: what its version number means now. Raises
        NotFound with the reason where it has none, or the source does not have that either."""
        digest, version = spec.build.digest, spec.build.version
        gone = f"{digest} of {spec.build.name} is pinned, but its source no longer has it"
        if not version:
            raise NotFound(
                f"{gone}, and no version number is known to look it up again; pin another version with"
                f" `corral backends pin {backend} VERSION`"
            )
        try:
            build = await self._resolver.resolve_version(spec, spec.build.name, version=version)
        except CorralError as error:
            raise NotFound(f"{gone}, and {error}") from None
        new = replace(spec, build=build.with_overrides(BuildRef(manifest=spec.build.manifest, alias=spec.build.alias)))
        for pin in await self._pins.read_all():
            known = pin.spec_of(spec.build.name)
            if known is not None and known.build.digest == digest:
                await self._pins.save_build(pin.id, new, reason=f"{digest} is no longer at its source")
        return new

    # What people call a version

    async def find_version(
        self,
        given: str,
        *,
        backend: str,
        offered: Mapping[str, OfferedBuild],
        states: Sequence[NodeBackends],
    ) -> FoundVersion:
        """A version number or the beginning of a digest, for each build: as it was installed before, as it is on a
        node's disk, as the gallery offers it, or as its source has it. Raises NotFound if no build has it."""
        known = await self.read_known(backend, states)
        of_build: dict[str, dict[str, BackendSpec]] = {build: {} for build in offered}
        for spec in known:
            of_build.setdefault(spec.build.name, {})[spec.build.digest] = spec
        numbered: dict[str, BackendSpec] = {}
        exact: dict[str, BackendSpec] = {}
        problems: dict[str, str] = {}
        digests = {spec.build.digest for spec in known} | {one.resolved.build.digest for one in offered.values()}
        digest = match_digest(given, digests - {""}, backend)
        for build, one in offered.items():
            source, resolved = one.source, one.resolved
            here = [spec for spec in of_build[build].values() if is_same_version(given, spec.build.version)]
            newest = spec_of(resolved, reference=source.reference, uri=source.uri)
            if here:
                numbered[build] = here[-1]
            elif digest in of_build[build]:
                exact[build] = of_build[build][digest]
            elif resolved.build.digest and resolved.build.digest == digest:
                exact[build] = newest
            elif is_same_version(given, resolved.build.version):
                numbered[build] = newest
            elif digest not in digests:
                whole = digest if digest.startswith("sha256:") and len(digest) == DIGEST_LENGTH else ""
                try:
                    spec = await self._spec_at_source(source, resolved, version="" if whole else given, digest=whole)
                except NotFound as error:
                    problems[build] = str(error)
                    continue
                (exact if whole else numbered)[build] = spec
        specs = numbered or exact
        if not specs:
            versions = ", ".join(sorted({version_label(spec) for spec in known})) or "none"
            why = f" ({'; '.join(sorted(problems.values()))})" if problems else ""
            raise NotFound(f"there is no version {given!r} of {backend}{why}; known versions: {versions}")
        pinned = {build: self._complete(spec, offered[build].resolved) for build, spec in specs.items()}
        spelled = next((spec.build.version for spec in numbered.values() if spec.build.version), given)
        return FoundVersion(version=spelled if numbered else "", specs=pinned, problems=problems if numbered else {})

    async def read_known(self, backend: str, states: Sequence[NodeBackends]) -> list[BackendSpec]:
        """The versions that nodes have had or have, as specs; those that are only on a disk without their source."""
        known: dict[tuple[str, str], BackendSpec] = {}
        for key in sorted({backend, *(state.key_of(backend) for state in states)}):
            for digest, spec in (await self._intents.find_specs(key)).items():
                known[spec.build.name, digest] = replace(spec, build=replace(spec.build, digest=digest))
        for state in states:
            found = state.find(backend)
            for digest in found.versions if found is not None else ():
                version = found.version if found is not None and digest == found.digest else ""
                name, alias = (found.name, found.alias) if found is not None else ("", "")
                build = BuildRef(name=name, alias=alias, digest=digest, version=version)
                known.setdefault((name, digest), BackendSpec(reference=state.key_of(backend), build=build))
        return list(known.values())

    async def _spec_at_source(
        self, source: BackendSpec, resolved: ResolvedBackend, *, version: str = "", digest: str = ""
    ) -> BackendSpec:
        name = resolved.build.name
        if resolved.build.version and not resolved.build.version.startswith("v"):
            version = version.removeprefix("v")  # as its gallery spells versions
        build = await self._resolver.resolve_version(source, name, version=version, digest=digest)
        return spec_of(replace(resolved, build=build, pinned=True), reference=source.reference, uri=source.uri)

    def _complete(self, spec: BackendSpec, offered: ResolvedBackend) -> BackendSpec:
        """With a source, also for a version that is only on a disk."""
        resolved = with_version(offered, spec)
        return replace(
            spec,
            build=resolved.build,
            galleries="",
            force=False,
            reason=spec.reason or offered.reason,
            pinned=True,
        )


def in_previous_version(resolved: ResolvedBackend, held_back: HeldBack) -> ResolvedBackend | Unresolved:
    """What a node gets instead of a version that a rollout has not accepted: the version before, or the build before
    where the rollout changes the build."""
    previous = held_back.change.previous
    if previous.build.name == resolved.build.name:
        return with_version(resolved, previous)
    if not previous.build.uris:
        source = f"no source of {previous.build.name}, which the nodes had before, is known"
        return Unresolved(NotFound(f"{held_back.describe()}; {source}"))
    return ResolvedBackend(build=previous.build, reason=previous.reason, pinned=True)


def with_version(resolved: ResolvedBackend, spec: BackendSpec) -> ResolvedBackend:
    """The build in the pinned version."""
    build, pinned = resolved.build, spec.build
    uris = pinned.uris or tuple(pinned_uri(uri, pinned.digest) if pinned.digest else uri for uri in build.uris)
    manifest = pinned.manifest or build.manifest
    return replace(
        resolved,
        build=replace(pinned, name=build.name, alias=build.alias, uris=uris, manifest=manifest),
        unconfirmed="",
        pinned=True,
    )
