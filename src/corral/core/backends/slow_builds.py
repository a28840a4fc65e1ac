"""Nodes with an accelerator that have only the CPU build of a backend: the reason, and what corrects it. Every place
that shows it shows this value."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.core.backends.acceleration import has_accelerator, is_accelerated
from corral.core.backends.variants import Chosen, Variant, is_compatible, resolve_in_galleries
from corral.core.nodes.capability import capability_of
from corral.core.nodes.node import Node
from corral.core.nodes.observed import ObservedBackend, family_of

Galleries = Mapping[str, Mapping[str, Variant]]
"""By gallery: its entries by lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowBuild:
    """A CPU build on a node with an accelerator."""

    node_id: str
    node_name: str
    backend: str
    """The family, as models name it."""
    build: str
    capability: str
    reason: str
    remedy: str
    """The command that corrects it, or what is missing for that."""


def find_slow_builds(
    node: Node,
    backends: Sequence[ObservedBackend],
    galleries: Galleries,
    *,
    capability_reason: str = "",
    lacking: Collection[str] = (),
) -> list[SlowBuild]:
    """One for each family of which the node has a CPU build and no accelerated one, although a gallery has one for
    other machines at least; also if an accelerated one is there, but the family points to the CPU build. A backend that
    exists for the CPU only is what it should be. `lacking`: builds that do not exist for the node's platform."""
    capability = capability_of(node)
    vendor = node.gpu_vendor if node.gpu_vendor and has_accelerator(node.gpu_vendor) else ""
    if not has_accelerator(capability) and not vendor:
        return []
    families: dict[str, dict[str, bool | None]] = {}
    for one in backends:
        if not one.is_meta:
            pointed = family_of(backends, one.name)
            family = pointed if pointed != one.name else one.alias or one.name
            families.setdefault(family, {})[one.name] = _judge(one, galleries)
    found = []
    for family, builds in sorted(families.items()):
        slow = sorted(name for name, accelerated in builds.items() if accelerated is False)
        fast = _accelerated_builds(family, galleries)
        current = next((one.concrete for one in backends if one.name == family and one.concrete in slow), None)
        unused = current is not None and _pick_accelerated(node, family, fast, galleries, lacking) is not None
        if slow and fast and (unused or not any(builds.values())):
            build = current or slow[0]
            reason, remedy = _explain(node, family, build, fast, galleries, capability_reason, lacking)
            found.append(
                SlowBuild(
                    node_id=node.id,
                    node_name=node.name,
                    backend=family,
                    build=build,
                    capability=capability,
                    reason=reason,
                    remedy=remedy,
                )
            )
    return found


def _explain(
    node: Node,
    family: str,
    build: str,
    fast: Sequence[Variant],
    galleries: Galleries,
    capability_reason: str,
    lacking: Collection[str],
) -> tuple[str, str]:
    capability = capability_of(node)
    slow = f"{build} uses only the processor of {node.name}"
    if not has_accelerator(capability):
        why = f"{slow}, which has a GPU of {node.gpu_vendor}: its capability is {capability}"
        flag = "corral worker --capability" if node.speaks_corral else "LOCALAI_FORCE_META_BACKEND_CAPABILITY="
        token = node.gpu_vendor or ""
        start = f"{flag}{'' if flag.endswith('=') else ' '}{token}"
        return f"{why} ({capability_reason})" if capability_reason else why, f"start its worker with `{start}`"
    best = _pick_accelerated(node, family, fast, galleries, lacking)
    if best is not None:
        return f"{slow} ({capability}); {best} uses its accelerator", _install(family, node)
    usable = [one.name for one in fast if is_compatible(one.name, one.uri, capability) and one.name not in lacking]
    reason = f"{slow} ({capability}), because no gallery has a build of {family} for {capability}"
    if missing := [one.name for one in fast if one.name in lacking]:
        reason = f"{reason} and the node's platform: {', '.join(missing)} does not exist for that"
    if usable:
        # Models that name the family keep its build: only those that name this one get it.
        named_by = f"and name it in the models that are to use it (`backend: {usable[0]}`)"
        return f"{reason}; {usable[0]} may run there", f"{_install(usable[0], node)}, {named_by}"
    offered = ", ".join(sorted({key for entry in fast for key in entry.capabilities if has_accelerator(key)}))
    return reason, f"add a gallery that has one, or use another engine there; there are builds for {offered}"


def _pick_accelerated(
    node: Node, family: str, fast: Sequence[Variant], galleries: Galleries, lacking: Collection[str]
) -> str | None:
    """The accelerated build that an install of the family would put on the node."""
    named = _having(family, galleries)
    without = [f"{gallery}@{name}" for gallery in named for name in lacking]
    best = resolve_in_galleries(named, family, capability_of(node), without=without)
    return best.name if isinstance(best, Chosen) and any(one.name == best.name for one in fast) else None


def _install(name: str, node: Node) -> str:
    return f"`corral backends install {name} --node {node.name}`"


def _judge(backend: ObservedBackend, galleries: Galleries) -> bool | None:
    """By its gallery entry, else by its own name and source."""
    entries = [named[backend.name.lower()] for named in galleries.values() if backend.name.lower() in named]
    known = [entry for entry in entries if entry.uri]
    capabilities = known[0].capabilities if known else {}
    return is_accelerated(backend.name, known[0].uri if known else backend.uri, capabilities)


def _having(family: str, galleries: Galleries) -> Galleries:
    return {gallery: named for gallery, named in galleries.items() if family.lower() in named}


def _accelerated_builds(family: str, galleries: Galleries) -> list[Variant]:
    found: list[Variant] = []
    for named in _having(family, galleries).values():
        targets: Iterable[str] = dict.fromkeys(named[family.lower()].capabilities.values())
        entries = [named[target.lower()] for target in targets if target.lower() in named]
        found += [entry for entry in entries if is_accelerated(entry.name, entry.uri, entry.capabilities)]
    return found
