"""Plans an operation: one intent for each node, from what the nodes have and what was requested before."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from corral.core.backends.build import BuildRef
from corral.core.backends.conflicts import names_in
from corral.core.backends.intents import BackendSpec, Intent, Verb
from corral.core.backends.operations import NewIntent
from corral.core.backends.policies import OnDrift, Policy, policy_for
from corral.core.backends.rollouts import HeldBack
from corral.core.backends.version_pins import (
    DesiredVersion,
    VersionPin,
    desired_version,
    is_same_version,
    version_label,
)
from corral.core.errors import InvalidInput
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.observed import ObservedBackend, family_of, find_named
from corral.core.nodes.targets import Skipped

SHORTEST_PREFIX = 6
"""Digits of a digest that are taken for one without `sha256:` before them."""


@dataclass(frozen=True, kw_only=True)
class NodeBackends:
    """One node with its installed backends and its intents."""

    node: Node
    backends: Sequence[ObservedBackend] | None
    """None if the node has never reported."""
    newest: Mapping[str, Intent]
    """The newest intent for each backend."""
    restored: Mapping[str, Intent] = field(default_factory=dict)
    """Where the newest intent was cancelled: the one before it, which is in effect again."""
    pins: Sequence[VersionPin] = ()
    """All pins in force."""
    held: Sequence[HeldBack] = ()
    """Versions that rollouts have not accepted."""

    def key_of(self, name: str) -> str:
        """The name that the backend's intents have on this node: the family it was installed for, if there is one."""
        if name in self.newest:
            return name
        family = family_of(self.backends or (), name)
        return family if family in self.newest or family != name else name

    def find(self, name: str) -> ObservedBackend | None:
        """The installed backend of that name, family or alias."""
        if name not in self._found:
            key = self.key_of(name)
            newest, family = self.newest.get(key), self._by_name.get(key)
            build = newest.spec.build.name if newest is not None else ""
            if family is not None and family.concrete in self._by_name:
                build = family.concrete  # also where a change to another build was undone and left that on the disk
            self._found[name] = find_named(self._by_name, build, key, name)
        return self._found[name]

    def effective_intent(self, name: str) -> Intent | None:
        """The intent that determines what must be installed here."""
        key = self.key_of(name)
        return self.restored.get(key) or self.newest.get(key)

    def first_install(self, name: str) -> Intent | None:
        """The live intent that will install it here for the first time."""
        newest = self.newest.get(self.key_of(name))
        waits = newest is not None and newest.state.live and newest.verb.ensures_presence
        return newest if waits and self.find(name) is None else None

    def presence_intent(self, name: str) -> Intent | None:
        """The newest intent to have a backend of this name or alias."""
        installing = [
            intent
            for intent in self.newest.values()
            if intent.verb.ensures_presence and name in names_in(intent.backend, intent.spec)
        ]
        return max(installing, key=lambda intent: intent.generation, default=None)

    def desired_version(self, name: str, build: str = "") -> DesiredVersion:
        """Which version is desired here, by default of the build that is installed or being installed."""
        key = self.key_of(name)
        if not build:
            found, intent = self.find(name), self.effective_intent(name)
            build = found.name if found is not None else intent.spec.build.name if intent is not None else ""
        return desired_version(self.node, key, build, self.pins, self.held)

    @cached_property
    def _by_name(self) -> Mapping[str, ObservedBackend]:
        return {backend.name: backend for backend in self.backends or ()}

    @cached_property
    def _found(self) -> dict[str, ObservedBackend | None]:
        """A cache: a listing of the whole fleet looks up each backend several times."""
        return {}


def pick_holders(states: Iterable[NodeBackends], backend: str) -> list[NodeBackends]:
    """Nodes that have the backend."""
    return [state for state in states if state.find(backend) is not None]


def pick_upgrades(states: Iterable[NodeBackends], backend: str) -> list[NodeBackends]:
    """Nodes that have the backend, and those whose first install is unfinished: they get the new version directly."""
    return [state for state in states if state.find(backend) is not None or state.first_install(backend) is not None]


def skip_pinned(states: Iterable[NodeBackends], backend: str) -> tuple[list[NodeBackends], list[Skipped]]:
    """Skips nodes on which the version is pinned."""
    free, pinned = [], []
    for state in states:
        desired = state.desired_version(backend)
        if desired.pin is None:
            free.append(state)
            continue
        command = f"corral backends follow {desired.pin.backend}"
        reason = f"{desired.reason}; `{command}` lets it follow the galleries again"
        pinned.append(Skipped(node_id=state.node.id, node_name=state.node.name, reason=reason))
    return free, pinned


def skip_frozen_nodes(
    states: Iterable[NodeBackends], backend: str, policies: Sequence[Policy]
) -> tuple[list[NodeBackends], list[Skipped]]:
    """Skips nodes on which a policy freezes the version."""
    free, frozen = [], []
    for state in states:
        policy = policy_for(state.node, state.key_of(backend), policies)
        if policy is None or policy.on_drift is not OnDrift.FREEZE:
            free.append(state)
            continue
        command = f"corral backends policies --drift {policy.id} correct"
        reason = f"{backend} is frozen by a policy; `{command}` allows upgrades again"
        frozen.append(Skipped(node_id=state.node.id, node_name=state.node.name, reason=reason))
    return free, frozen


def plan_deletes(states: Iterable[NodeBackends], backend: str) -> list[NewIntent]:
    """For nodes that have it, that were told to install it, or that have not reported. The others get an intent that is
    created only if an install is requested in the meantime."""
    intents = []
    for state in states:
        key = state.key_of(backend)
        newest, found = state.newest.get(key), state.find(backend)
        installing = state.presence_intent(key)
        last = installing or newest
        build = found.name if found is not None else last.spec.build.name if last is not None else ""
        intents.append(
            NewIntent(
                node_id=state.node.id,
                node_name=state.node.name,
                backend=key,
                spec=BackendSpec(reference=key, build=BuildRef(name=build)),
                only_if_desired=installing is None and found is None and state.backends is not None,
            )
        )
    return intents


def plan_rollbacks(
    states: Iterable[NodeBackends], backend: str, *, to: Container[str] | None, specs: Mapping[str, BackendSpec]
) -> tuple[list[NewIntent], list[Skipped]]:
    """`to`: digests of the version, or None for the previous one. `specs`, by digest: versions that were installed
    successfully, and how to install them again."""
    intents, skipped = [], []
    for state in states:
        found = state.find(backend)
        node = state.node
        if found is None:
            continue
        newest = state.newest.get(state.key_of(backend))
        stays = to is None and _is_changing(newest, found)
        earlier = found.digest if stays else _earlier(found, to, specs)
        # A version that is only on the disk may be one that did not start.
        unproven = to is None and earlier not in specs and not stays
        if (earlier is None or unproven) and (former := _former_build(state, found, to, specs)) is not None:
            found, earlier = former, former.digest
        if not node.speaks_corral:
            reason = "a LocalAI worker does not keep earlier versions"
        elif earlier is None:
            reason = f"the node has no earlier version of {found.name}"
            if to is not None:
                reason = f"this version of {found.name} is not on the node's disk; `corral backends pin` installs it"
        else:
            key = state.key_of(backend)
            before = specs.get(earlier) or BackendSpec(reference=key)
            spec = replace(
                before,
                reference=key,
                build=replace(before.build, name=found.name, digest=earlier),
                force=False,
                reason=before.reason or "an administrator rolled back to it",
                pinned=True,
            )
            intents.append(NewIntent(node_id=node.id, node_name=node.name, backend=key, spec=spec))
            continue
        skipped.append(Skipped(node_id=node.id, node_name=node.name, reason=reason))
    return intents, skipped


def plan_pinned(
    states: Iterable[NodeBackends], backend: str, specs: Iterable[BackendSpec]
) -> tuple[list[NewIntent], list[Skipped]]:
    """For nodes that have another version than the one pinned for their build, or whose first install is unfinished."""
    by_build = {spec.build.name: spec for spec in specs}
    intents, skipped = [], []
    for state in states:
        found, waiting, node = state.find(backend), state.first_install(backend), state.node
        key = state.key_of(backend)
        newest = state.newest.get(key)
        build = found.name if found is not None else waiting.spec.build.name if waiting is not None else ""
        spec = by_build.get(build)
        if spec is None or (found is not None and not _is_changing(newest, found) and has_version(found, spec)):
            continue
        if not node.speaks_corral:
            reason = "a LocalAI worker installs only the version that its gallery offers"
            skipped.append(Skipped(node_id=node.id, node_name=node.name, reason=reason))
            continue
        verb = Verb.INSTALL if found is None else Verb.UPGRADE
        intents.append(NewIntent(node_id=node.id, node_name=node.name, backend=key, spec=spec, verb=verb))
    return intents, skipped


def has_version(found: ObservedBackend, spec: BackendSpec) -> bool:
    """By digest or, where none is known in advance, by version number."""
    if spec.build.digest:
        return found.digest == spec.build.digest
    return not found.version or not spec.build.version or is_same_version(found.version, spec.build.version)


def changes_version(found: ObservedBackend, spec: BackendSpec) -> bool:
    """Whether an install of this spec puts another version or another build in the place of the installed one."""
    if not found.digest or found.is_system or not spec.build.name:
        return False  # broken, preinstalled, or only the worker knows what the name means
    if found.name != spec.build.name or not has_version(found, spec):
        return True
    return bool(spec.uri and found.uri) and not spec.build.digest and found.uri != spec.uri


def may_change_version(found: ObservedBackend, spec: BackendSpec) -> bool:
    """Whether an upgrade to this spec changes the version, as far as that is known in advance: a source that tells
    neither digest nor version may have another one."""
    if found.name != spec.build.name or not has_version(found, spec):
        return True
    return not spec.build.digest and not (spec.build.version and found.version)


def pick_changing(
    intents: Iterable[NewIntent], states: Iterable[NodeBackends], backend: str, verb: Verb
) -> list[NewIntent]:
    """Those that may bring another version to nodes that have one. The others install the backend for the first time,
    or the same version again, which repairs it. `verb`: of the operation."""
    by_id = {state.node.id: state for state in states}
    return [
        intent
        for intent in intents
        if (intent.verb or verb) is Verb.UPGRADE
        and (state := by_id.get(intent.node_id)) is not None
        and (found := state.find(backend)) is not None
        and may_change_version(found, intent.spec)
    ]


def plan_installs(intents: Iterable[NewIntent], states: Iterable[NodeBackends]) -> list[NewIntent]:
    """Where another version is installed, the install is an upgrade: the new version is tried before it replaces the
    installed one. LocalAI workers keep what they have, unless they are forced."""
    by_id = {state.node.id: state for state in states}
    planned = []
    for intent in intents:
        state = by_id[intent.node_id]
        found = state.find(intent.backend)
        obeys = state.node.speaks_corral or intent.spec.force
        replaces = obeys and found is not None and changes_version(found, intent.spec)
        planned.append(replace(intent, verb=Verb.UPGRADE) if replaces else intent)
    return planned


def find_common_specs(intents: Iterable[NewIntent]) -> list[BackendSpec]:
    """For each build the version that most nodes are rolled back to."""
    by_build: dict[str, list[BackendSpec]] = {}
    for intent in intents:
        by_build.setdefault(intent.spec.build.name, []).append(intent.spec)
    found = []
    for _, specs in sorted(by_build.items()):
        digests = [spec.build.digest for spec in specs]
        found.append(max(specs, key=lambda spec: (digests.count(spec.build.digest), spec.build.digest)))
    return found


def describe_rolled_back(states: Iterable[NodeBackends], backend: str, intents: Sequence[NewIntent]) -> str:
    """`rolled back from 1.3`: the versions that the nodes leave."""
    by_id = {intent.node_id: intent for intent in intents}
    left = set()
    for state in states:
        found, intent = state.find(backend), by_id.get(state.node.id)
        if found is None or intent is None:
            continue
        newest = state.newest.get(state.key_of(backend))
        if newest is not None and _is_changing(newest, found):
            left.add(version_label(newest.spec))
        elif not has_version(found, intent.spec):
            left.add(
                version_label(BackendSpec(reference="", build=BuildRef(version=found.version, digest=found.digest)))
            )
    return f"rolled back from {', '.join(sorted(left))}" if left else "rolled back"


def as_known(reference: str, states: Sequence[NodeBackends], policies: Sequence[Policy] = ()) -> str:
    """The reference in the spelling that the fleet knows, whatever its case."""
    gallery, at, name = reference.rpartition("@")
    known = {policy.backend for policy in policies}
    for state in states:
        known |= {*state.newest, *(backend.name for backend in state.backends or ())}
        known |= {backend.alias for backend in state.backends or ()} - {""}
    if name in known:
        return reference
    alike = sorted(one for one in known if one.lower() == name.lower())
    return f"{gallery}{at}{alike[0]}" if alike else reference


def complete_digest(given: str, states: Iterable[NodeBackends], backend: str) -> str:
    """The complete digest that begins like this on one of the nodes. One that no node has is returned unchanged."""
    there = {digest for state in states if (found := state.find(backend)) for digest in found.versions}
    return match_digest(given, there, backend)


def match_digest(given: str, known: Iterable[str], backend: str) -> str:
    """The known digest that begins like this; the given text where none does. Fewer than six digits without
    `sha256:` are no digest: `9` is a version, whatever the digests begin with."""
    text, known = given.strip().lower(), set(known)
    start = text.removeprefix("sha256:")
    if given in known or not start or (start == text and len(start) < SHORTEST_PREFIX):
        return given
    matching = sorted(digest for digest in known if digest.removeprefix("sha256:").startswith(start))
    if len(matching) > 1:
        raise InvalidInput(
            f"{given!r} matches several versions of {backend}: {', '.join(matching)}. Give more digits of the digest."
        )
    return matching[0] if matching else given


def _earlier(found: ObservedBackend, to: Container[str] | None, good: Container[str]) -> str | None:
    """Prefers a version that was installed successfully to one that is only on the disk."""
    if to is not None:
        return next((digest for digest in found.versions if digest in to), None)
    if found.digest not in found.versions:
        return None
    later = found.versions[found.versions.index(found.digest) + 1 :]
    return next((digest for digest in later if digest in good), later[0] if later else None)


def _former_build(
    state: NodeBackends, found: ObservedBackend, to: Container[str] | None, specs: Mapping[str, BackendSpec]
) -> ObservedBackend | None:
    """Another build that was installed under the same name, and is still on the disk."""
    builds = [one for one in state.backends or () if one.name != found.name and one.digest in specs]
    wanted = [one for one in builds if specs[one.digest].build.name == one.name and (to is None or one.digest in to)]
    return max(wanted, key=lambda one: (one.installed_at, one.name), default=None)


def _is_changing(newest: Intent | None, found: ObservedBackend) -> bool:
    """Whether a live intent replaces the installed version: then a rollback means to stay at it."""
    return (
        newest is not None
        and newest.state.live
        and newest.verb in (Verb.INSTALL, Verb.UPGRADE)
        and bool(newest.spec.build.digest and found.digest)
        and newest.spec.build.digest != found.digest
    )


def newest_by_node(intents: Iterable[Intent]) -> dict[NodeId, dict[str, Intent]]:
    found: dict[NodeId, dict[str, Intent]] = {}
    for intent in intents:
        found.setdefault(intent.node_id, {})[intent.backend] = intent
    return found
